package client

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"sync"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// dropWithin is how long the server has to drop an upload.
const dropWithin = time.Second

// interruptibly is a reader whose Read ends with ctx, if from can be interrupted.
// The function gives from back.
func interruptibly(ctx context.Context, from io.Reader) (io.Reader, func()) {
	reader := newStdinReader(from)
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { reader.interrupt(); close(interrupted) })
	return reader, func() {
		if !stop() {
			<-interrupted
		}
		reader.release()
	}
}

// drop has the server forget an upload that nobody knows the name of, should it be
// there to hear it: it would count for minutes.
func (u *upload) drop(ctx context.Context, err error) {
	if u.id == "" || u.options.ID != "" || ctx.Err() == nil && !errors.As(err, new(*ReadError)) {
		return
	}
	ctx, cancel := dropping(ctx)
	defer cancel()
	_ = u.forget(ctx) // it expires
}

// dropping returns a context for calls that drop uploads, whose own one is over:
// they pass the gate of a client that is being closed.
func dropping(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = context.WithValue(context.WithoutCancel(ctx), passesGate{}, true)
	return context.WithTimeoutCause(ctx, dropWithin, errors.New("the upload was not dropped in time"))
}

// uploadCount counts the uploads of a client and those that were made of it, so
// that Close can wait for their ends. Its zero value counts none.
type uploadCount struct {
	mu    sync.Mutex
	count int           // guarded by mu
	none  chan struct{} // guarded by mu; closed when count becomes zero; nil if nothing waits
}

// add counts an upload until the returned function is called, once.
func (c *uploadCount) add() (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.count--; c.count == 0 && c.none != nil {
			close(c.none)
			c.none = nil
		}
	}
}

// wait blocks until no upload is counted, for this long at most. It is called once
// at a time.
func (c *uploadCount) wait(most time.Duration) {
	c.mu.Lock()
	if c.count == 0 {
		c.mu.Unlock()
		return
	}
	none := make(chan struct{})
	c.none = none
	c.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-none:
	case <-timer.C:
	}
}

// forget has the server drop what it has of the upload, also its answer if it is
// complete.
func (u *upload) forget(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errors.New("the upload is forgotten"))
	stream, err := u.client.files.UploadFile(ctx)
	if err != nil {
		return err
	}
	// One that begins anew drops what there was, and one that ends with a digest
	// that it does not have is dropped itself.
	head := &execwirev1.UploadHead{Mode: execwirev1.UploadMode_UPLOAD_MODE_REPLACE, UploadId: u.id}
	head.Path, head.RawPath = pathFields(u.path)
	end := &execwirev1.UploadEnd{Sha256: make([]byte, sha256.Size)}
	err = ended(stream.Send(&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: head}}))
	if err == nil {
		err = ended(stream.Send(&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_End{End: end}}))
	}
	if err == nil {
		_, err = stream.CloseAndRecv()
	}
	if Reason(err) == execwirev1.ErrorReason_ERROR_REASON_DIGEST_MISMATCH {
		return nil
	}
	return err
}
