package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// UploadOptions say how a file is uploaded. The zero value replaces what is
// there.
type UploadOptions struct {
	// InPlace truncates and writes the file that is there, so that it keeps its
	// owner and its other names, and a reader can see a part of it. Nothing else
	// of the options is for it but OnProgress.
	InPlace bool
	// Permissions are the permission bits of the file, of mode 07777. nil keeps
	// those of the file that is replaced; a new one gets 0666 without the bits of
	// the server's umask.
	Permissions *uint32
	// ModifyTime is the time of the last change that the file gets; zero is that
	// of the upload.
	ModifyTime time.Time
	// IfMatchSHA256 is the SHA-256 that the file has to have now, else the upload
	// fails with CONTENT_NOT_MATCHED. nil matches everything.
	IfMatchSHA256 []byte
	// IfMissing fails with PATH_ALREADY_EXISTS if anything is there.
	IfMissing bool
	// Sync has content and name on the disk before Upload returns.
	Sync bool
	// ID names the upload, so that it goes on where an earlier one of the same ID
	// and path was interrupted, if the server still has what it received; the
	// content has to be the same, or it is sent again as a whole. At most 128
	// bytes. Empty begins anew.
	ID string
	// OnProgress is called after each piece with how many bytes of the file were
	// sent. After a lost connection that can be less than before.
	OnProgress func(sent int64)
}

// Uploaded is a file that was uploaded.
type Uploaded struct {
	// Size is how many bytes it has.
	Size int64
	// SHA256 is their digest, which the server has checked unless it wrote in
	// place.
	SHA256 []byte
	// Metadata is what the file is now; nil when it was written in place.
	Metadata *execwirev1.FileMetadata
}

// Upload gives a file of the server the content that from has, up to its end. In
// the place of what was there it is put when it is whole and has arrived
// unchanged; a failure leaves what was there. A lost connection is resumed for a
// minute and a quarter, from what the server has received: Upload goes back in from
// if it is an io.Seeker that can, and else keeps what the server may not have, some
// MiB. One without an ID that ctx, from or Close end is dropped by the server, which is
// waited for, a second at most. It reads from where from stands, and by the caller's goroutine, which
// calls OnProgress too.
//
// Errors are [*Error] when the server refused, [*ReadError] when from did, or wrap
// the cause of ctx.
func (c *Client) Upload(ctx context.Context, path string, from io.Reader, options UploadOptions) (Uploaded, error) {
	defer c.life.uploads.add()()
	ctx, done := c.life.within(ctx)
	defer done()
	source, size := newUploadSource(from)
	if keeping, ok := source.(*keepingSource); ok {
		var release func()
		keeping.from, release = interruptibly(ctx, from)
		defer release()
	}
	u := &upload{client: c, path: path, source: source, options: options, digest: sha256.New(), id: options.ID}
	if u.id == "" && !options.InPlace && size > resumeBytes {
		u.id = uuid.NewString()
	}
	source.keep(u.id != "")
	uploaded, err := u.run(ctx)
	if err != nil {
		u.drop(ctx, err)
	}
	return uploaded, err
}

// WriteFile replaces the content of a file. It is [Client.Upload] without options.
func (c *Client) WriteFile(ctx context.Context, path string, content []byte) error {
	_, err := c.Upload(ctx, path, bytes.NewReader(content), UploadOptions{})
	return err
}

const (
	// resumeBytes is the size of a file up to which it is rather sent again than
	// kept by the server.
	resumeBytes = 256 << 10
	// pieceBytes is the data in one message: a little less than 32 KiB, of which
	// gRPC has buffers.
	pieceBytes = 32_700
	// confirmBytes is how much is sent before the server is asked what it has
	// received, where what it has not must be kept.
	confirmBytes = 8 << 20
	// mostRestarts is how often an upload begins from the start again because the
	// server has lost what it had received, or had it from another content.
	mostRestarts = 3
)

// ReadError says that what was to be uploaded could not be read.
type ReadError struct {
	// Path is the file of the server.
	Path string
	// Err is what the reader returned.
	Err error
}

func (e *ReadError) Error() string {
	return fmt.Sprintf("failed to read what %s is to have: %v", e.Path, e.Err)
}

func (e *ReadError) Unwrap() error { return e.Err }

// upload is one Upload.
type upload struct {
	client  *Client
	path    string
	source  uploadSource
	options UploadOptions
	// id is what the server knows the upload by; empty if it keeps nothing.
	id string
	// digest is that of the first hashed bytes.
	digest hash.Hash
	hashed int64
	// known is what the server has received for sure.
	known int64
	// asked is at how many sent bytes the server was last asked.
	asked int64
	// lost is what the last attempt failed with; nil before that.
	lost error
	// complete is whether the content was read, and sent, to its end.
	complete bool
	// restarts counts how often what the server had received was of no use.
	restarts int
}

func (u *upload) run(ctx context.Context) (Uploaded, error) {
	anew := u.options.ID == "" // whether the server has nothing of it for sure
	for connection := (link{}); ; anew = false {
		uploaded, offset, err := u.attempt(ctx, anew)
		if err == nil {
			return uploaded, nil
		}
		if offset > u.known {
			u.known, connection = offset, link{}
		}
		u.lost = err
		if u.mustBeginAgain(err, offset) {
			continue
		}
		if err := connection.again(ctx, err); err != nil {
			return Uploaded{}, err
		}
		if uploaded, ok := u.arrived(ctx); ok {
			return uploaded, nil
		}
	}
}

// arrived is whether the last attempt did all that it was to do, and only its
// answer was lost.
func (u *upload) arrived(ctx context.Context) (Uploaded, bool) {
	if !u.complete || u.options.InPlace {
		return Uploaded{}, false
	}
	info, err := u.client.StatSHA256(ctx, u.path)
	m, digest := info.Metadata, u.digest.Sum(nil)
	switch {
	case err != nil, !bytes.Equal(info.SHA256, digest):
		return Uploaded{}, false
	case u.options.Permissions != nil && m.GetMode() != *u.options.Permissions,
		!u.options.ModifyTime.IsZero() && !sameTime(u.options.ModifyTime, m.GetModifyTime().AsTime()):
		return Uploaded{}, false
	}
	return Uploaded{Size: int64(m.GetSize()), SHA256: digest, Metadata: m}, true
}

// mustBeginAgain is whether what the server had received at the offset is gone,
// or was of another content.
func (u *upload) mustBeginAgain(err error, offset int64) bool {
	reason := Reason(err)
	useless := reason == execwirev1.ErrorReason_ERROR_REASON_UPLOAD_NOT_FOUND ||
		reason == execwirev1.ErrorReason_ERROR_REASON_DIGEST_MISMATCH
	if offset == 0 || !useless || u.restarts == mostRestarts {
		return false
	}
	u.restarts++
	u.known, u.hashed, u.complete = 0, 0, false
	u.digest.Reset()
	return true
}

// attempt sends what the server has not received, and returns from what offset.
func (u *upload) attempt(ctx context.Context, anew bool) (uploaded Uploaded, offset int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errors.New("the upload is over"))
	if !anew && u.id != "" {
		if offset, err = u.received(ctx); err != nil {
			return Uploaded{}, 0, err
		}
	}
	if !u.source.rewind(min(offset, u.hashed)) {
		return Uploaded{}, 0, fmt.Errorf("failed to go on with the upload of %s, which cannot be read from the start again: %w", u.path, u.lost)
	}
	stream, err := u.client.files.UploadFile(ctx)
	if err != nil {
		return Uploaded{}, offset, err
	}
	// This keeps gRPC from repeating the stream by itself. It does so with one whose
	// connection is lost before its head was written, also when Send has already
	// told the end of it: what was sent until then, and the half-close that asks for
	// the answer, would be a whole file to the server.
	_ = stream.Context()
	if err := u.send(ctx, stream, offset); err != nil {
		return Uploaded{}, offset, err
	}
	response, err := stream.CloseAndRecv()
	if err != nil {
		return Uploaded{}, offset, err
	}
	uploaded = Uploaded{Size: int64(response.GetSize()), SHA256: u.digest.Sum(nil), Metadata: response.GetMetadata()}
	if !u.complete || uploaded.Size != u.hashed {
		return Uploaded{}, offset, fmt.Errorf("failed to upload %s: the server broke the contract: it has taken %d bytes for the whole", u.path, uploaded.Size)
	}
	return uploaded, offset, nil
}

// received asks how much the server has; nothing if it does not know the upload,
// or has completed an earlier one of the same id: what that wrote may not be there
// any more, or have another mode. That one is forgotten, so that its answer is not
// taken for that of this one later.
func (u *upload) received(ctx context.Context) (int64, error) {
	response, err := u.client.files.GetUpload(ctx, &execwirev1.GetUploadRequest{UploadId: u.id})
	switch {
	case Reason(err) == execwirev1.ErrorReason_ERROR_REASON_UPLOAD_NOT_FOUND:
		return 0, nil
	case response.GetComplete() && !u.complete:
		return 0, u.forget(ctx)
	}
	return int64(response.GetReceivedBytes()), err
}

type uploadStream = grpc.ClientStreamingClient[execwirev1.UploadFileRequest, execwirev1.UploadFileResponse]

// send sends all that follows the offset. What the server said to it is for
// CloseAndRecv to tell.
func (u *upload) send(ctx context.Context, stream uploadStream, offset int64) error {
	if err := stream.Send(&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: u.head(offset)}}); err != nil {
		return ended(err)
	}
	for position := min(offset, u.hashed); ; {
		piece, err := u.source.next()
		if len(piece) > 0 {
			end := position + int64(len(piece))
			if end > u.hashed {
				u.digest.Write(piece[max(0, u.hashed-position):])
				u.hashed = end
			}
			if end > offset {
				data := &execwirev1.UploadFileRequest_Data{Data: piece[max(0, offset-position):]}
				if err := stream.Send(&execwirev1.UploadFileRequest{Message: data}); err != nil {
					return ended(err)
				}
			}
			position = end
			u.confirm(ctx, position)
			if u.options.OnProgress != nil {
				u.options.OnProgress(position)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return &ReadError{Path: u.path, Err: err}
		}
	}
	u.complete = true
	end := &execwirev1.UploadEnd{}
	if !u.options.InPlace {
		end.Sha256 = u.digest.Sum(nil)
	}
	return ended(stream.Send(&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_End{End: end}}))
}

// ended is nil when the server has answered, which a stream tells by io.EOF.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (u *upload) head(offset int64) *execwirev1.UploadHead {
	head := &execwirev1.UploadHead{Mode: execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE}
	head.Path, head.RawPath = pathFields(u.path)
	if u.options.InPlace {
		return head
	}
	head.Mode = execwirev1.UploadMode_UPLOAD_MODE_REPLACE
	head.UploadId, head.Offset = u.id, uint64(offset)
	head.IfMatchSha256, head.IfMissing = u.options.IfMatchSHA256, u.options.IfMissing
	head.Permissions, head.Sync = u.options.Permissions, u.options.Sync
	if !u.options.ModifyTime.IsZero() {
		head.ModifyTime = timestamppb.New(u.options.ModifyTime)
	}
	return head
}

// confirm drops what the source keeps and the server has received.
func (u *upload) confirm(ctx context.Context, position int64) {
	if u.source.kept() < confirmBytes || position < u.asked+confirmBytes {
		return
	}
	u.asked = position
	// If it cannot be asked, the stream fails too.
	if received, err := u.received(ctx); err == nil {
		u.source.forget(received)
	}
}
