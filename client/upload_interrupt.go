package client

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
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
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), dropWithin, errors.New("the upload was not dropped in time"))
	defer cancel()
	_ = u.forget(ctx) // it expires
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
