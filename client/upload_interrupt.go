package client

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"sync"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/notify"
)

// dropTimeout is how long the server has to drop an upload.
const dropTimeout = time.Second

// interruptible returns a reader whose Read ends with ctx, if from can be interrupted.
// The returned function releases from.
func interruptible(ctx context.Context, from io.Reader) (io.Reader, func()) {
	reader := newStdinReader(from)
	if reader.interrupt == nil {
		return from, func() {}
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { reader.interrupt(); close(interrupted) })
	return reader, func() {
		if !stop() {
			<-interrupted
		}
		reader.release()
	}
}

// drop makes the server forget an upload with a generated id, if it is reachable:
// otherwise it counts towards limits for minutes.
func (u *upload) drop(ctx context.Context, err error) {
	if u.id == "" || u.options.ID != "" || ctx.Err() == nil && !errors.As(err, new(*ReadError)) {
		return
	}
	ctx, cancel := withDropTimeout(ctx)
	defer cancel()
	_ = u.forget(ctx) // it expires
}

// withDropTimeout returns a context for calls that drop uploads after their own context
// has ended; they are allowed while the client closes.
func withDropTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = context.WithValue(context.WithoutCancel(ctx), afterCloseKey{}, true)
	return context.WithTimeoutCause(ctx, dropTimeout, errors.New("the upload was not dropped in time"))
}

// uploadCount counts the uploads of a client and its derived clients, so that Close can
// wait for them.
type uploadCount struct {
	mu    sync.Mutex
	count int              // guarded by mu
	none  notify.Broadcast // guarded by mu; the count becomes zero
}

// add counts an upload until the returned function is called, once.
func (c *uploadCount) add() (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.count--; c.count == 0 {
			c.none.Notify()
		}
	}
}

// wait blocks until the count is zero, for at most this long.
func (c *uploadCount) wait(most time.Duration) {
	c.mu.Lock()
	if c.count == 0 {
		c.mu.Unlock()
		return
	}
	none := c.none.Wait()
	c.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-none:
	case <-timer.C:
	}
}

// forget makes the server drop what it has of the upload, including its answer if it is
// complete.
func (u *upload) forget(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errors.New("the upload is forgotten"))
	stream, err := u.client.files.UploadFile(ctx)
	if err != nil {
		return err
	}
	// An upload that begins anew drops the earlier one, and one with a wrong digest is
	// dropped itself.
	head := &execwirev1.UploadHead{Mode: execwirev1.UploadMode_UPLOAD_MODE_REPLACE, UploadId: u.id}
	head.Path, head.RawPath = pathFields(u.path)
	end := &execwirev1.UploadEnd{Sha256: make([]byte, sha256.Size)}
	for _, request := range []*execwirev1.UploadFileRequest{
		{Message: &execwirev1.UploadFileRequest_Head{Head: head}}, {Message: &execwirev1.UploadFileRequest_End{End: end}},
	} {
		if err := ended(stream.Send(request)); err != nil {
			return err
		}
	}
	_, err = stream.CloseAndRecv()
	if Reason(err) == execwirev1.ErrorReason_ERROR_REASON_DIGEST_MISMATCH {
		return nil
	}
	return err
}
