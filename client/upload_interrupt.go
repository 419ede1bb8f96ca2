package client

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// finishTimeout is how long Close waits for the server, which has as long to drop an upload.
const finishTimeout = time.Second

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
	ctx, cancel := withFinishTimeout(ctx)
	defer cancel()
	_ = u.forget(ctx) // it expires
}

// withFinishTimeout returns a context for calls that drop uploads after their own context
// has ended; they are allowed while the client closes.
func withFinishTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = context.WithValue(context.WithoutCancel(ctx), afterCloseKey{}, true)
	return context.WithTimeoutCause(ctx, finishTimeout, errors.New("the upload was not dropped in time"))
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
