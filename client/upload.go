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

// UploadOptions configure an upload. The zero value replaces an existing file.
type UploadOptions struct {
	// InPlace truncates and writes the existing file, which keeps its owner and its
	// hard links; a reader can see a partial file. Of the other options, only
	// OnProgress applies.
	InPlace bool
	// Permissions are the permission bits of the file, of mode 07777. nil keeps those
	// of the replaced file; a new one gets 0666 without the umask of the server.
	Permissions *uint32
	// ModifyTime is the modification time of the file; zero is the time of the upload.
	ModifyTime time.Time
	// IfMatchSHA256 is the SHA-256 that the existing file must have; otherwise the
	// upload fails with CONTENT_NOT_MATCHED. nil disables the check.
	IfMatchSHA256 []byte
	// IfMissing fails with PATH_ALREADY_EXISTS if the path exists.
	IfMissing bool
	// Sync writes content and name to disk before Upload returns.
	Sync bool
	// ID identifies the upload, to resume an interrupted one with the same ID and path,
	// if the server still has its data; with different content, everything is sent
	// again. At most 128 bytes. Empty starts over.
	ID string
	// OnProgress is called after each piece with the number of bytes sent. What is sent
	// again after a lost connection is not reported again.
	OnProgress func(sent int64)
}

// Uploaded is the result of an upload.
type Uploaded struct {
	// Size is the size of the file.
	Size int64
	// SHA256 is its digest, which the server has verified unless it wrote in place.
	SHA256 []byte
	// Metadata describes the new file; nil if it was written in place.
	Metadata *execwirev1.FileMetadata
}

// Upload writes the content of from, up to its end, to a file of the server. The file
// is replaced atomically once the content is complete and verified; a failure leaves
// the previous file. Upload resumes after lost connections for 75 seconds, from what
// the server has received: it seeks in from if that is an io.Seeker, otherwise it
// buffers some MiB of unconfirmed data. Without an ID, the server drops an upload ended
// by ctx, from or Close; Upload waits for that for one second at most. The caller's
// goroutine reads from the current position of from, and calls OnProgress.
//
// Errors are [*Error] from the server, [*ReadError] from the reader, or wrap the cause of
// ctx.
func (c *FileClient) Upload(ctx context.Context, path string, from io.Reader, options UploadOptions) (Uploaded, error) {
	defer c.life.finishing.add()()
	ctx, done := c.life.within(ctx)
	defer done()
	source, size := newUploadSource(from)
	if source.seeker == nil {
		var release func()
		source.from, release = interruptible(ctx, from)
		defer release()
	}
	u := &upload{client: c, path: path, source: source, options: options, digest: sha256.New(), id: options.ID}
	// With an id, a repetition gets a lost answer. Without a condition, it may replace the
	// file again.
	conditional := options.IfMissing || options.IfMatchSHA256 != nil
	if u.id == "" && !options.InPlace && (size > resumeBytes || conditional) {
		u.id = uuid.NewString()
	}
	source.buffering = u.id != "" && source.seeker == nil
	uploaded, err := u.run(ctx)
	if err != nil {
		u.drop(ctx, err)
	}
	return uploaded, err
}

// WriteFile replaces the content of a file. It is [FileClient.Upload] without options.
func (c *FileClient) WriteFile(ctx context.Context, path string, content []byte) error {
	_, err := c.Upload(ctx, path, bytes.NewReader(content), UploadOptions{})
	return err
}

const (
	// resumeBytes is the size up to which a file is sent again instead of resumed, unless
	// that could fail because of what the first attempt did.
	resumeBytes = 256 << 10
	// pieceBytes is the data of one message: slightly less than 32 KiB, a buffer size
	// of gRPC.
	pieceBytes = 32_700
	// confirmBytes is how much is sent between requests for the received size, if
	// unconfirmed data must be buffered.
	confirmBytes = 8 << 20
	// maxRestarts limits how often an upload starts over because the server has lost
	// the received data, or has different content.
	maxRestarts = 3
)

// ReadError reports that the content to upload could not be read.
type ReadError struct {
	// Path is the file on the server.
	Path string
	// Err is what the reader returned.
	Err error
}

func (e *ReadError) Error() string {
	return fmt.Sprintf("failed to read the content for %s: %v", e.Path, e.Err)
}

func (e *ReadError) Unwrap() error { return e.Err }

// upload is one Upload.
type upload struct {
	client  *FileClient
	path    string
	source  *uploadSource
	options UploadOptions
	// id is the upload id; empty if the server keeps nothing.
	id string
	// digest is the digest of the first hashed bytes.
	digest hash.Hash
	hashed int64
	// reported is what OnProgress was last called with.
	reported int64
	// confirmed is what the server has certainly received.
	confirmed int64
	// confirmedAt is the number of sent bytes at the last request for the received size.
	confirmedAt int64
	// lastErr is the error of the last attempt, or nil.
	lastErr error
	// complete is whether all content was read and sent.
	complete bool
	// restarts counts how often the received data was unusable.
	restarts int
}

func (u *upload) run(ctx context.Context) (uploaded Uploaded, err error) {
	anew := u.options.ID == "" // whether the server certainly has none of it
	var connection connState
	err = connection.repeat(ctx, func(ctx context.Context) error {
		for {
			var offset int64
			uploaded, offset, u.lastErr = u.attempt(ctx, anew)
			anew = false
			if offset > u.confirmed {
				u.confirmed = offset
				connection.progressed()
			}
			if u.lastErr == nil || !u.mustRestart(u.lastErr, offset) {
				return u.lastErr
			}
		}
	})
	return uploaded, err
}

// mustRestart reports whether the data received up to offset is gone, or of
// different content.
func (u *upload) mustRestart(err error, offset int64) bool {
	reason := Reason(err)
	useless := reason == execwirev1.ErrorReason_ERROR_REASON_UPLOAD_NOT_FOUND ||
		reason == execwirev1.ErrorReason_ERROR_REASON_DIGEST_MISMATCH
	if offset == 0 || !useless || u.restarts == maxRestarts {
		return false
	}
	u.restarts++
	u.confirmed, u.hashed, u.complete = 0, 0, false
	u.digest.Reset()
	return true
}

// attempt sends what the server has not received, and returns the offset where it
// began.
func (u *upload) attempt(ctx context.Context, anew bool) (uploaded Uploaded, offset int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errors.New("the upload is over"))
	if !anew && u.id != "" {
		var complete bool
		if offset, complete, err = u.received(ctx); err != nil {
			return Uploaded{}, 0, err
		}
		if complete && offset == 0 {
			return u.empty(ctx)
		}
	}
	if !u.source.rewind(min(offset, u.hashed)) {
		// Not wrapped: a lost connection would be tried again, and this for nothing.
		return Uploaded{}, 0, fmt.Errorf("failed to resume the upload of %s, which cannot be read from the start again: %v", u.path, u.lastErr)
	}
	stream, err := u.client.files.UploadFile(ctx)
	if err != nil {
		return Uploaded{}, offset, err
	}
	// Context disables transparent retries of gRPC. They repeat a stream whose
	// connection is lost before the header, even if Send has already failed: the data
	// sent until then, followed by the half-close, would be a complete file for the
	// server.
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
		return Uploaded{}, offset, fmt.Errorf("failed to upload %s: the server broke the contract: it completed the file after %d bytes", u.path, uploaded.Size)
	}
	return uploaded, offset, nil
}

// empty returns the answer for an empty file that is there. A stream that continues it
// would begin at 0, as one that uploads it again.
func (u *upload) empty(ctx context.Context) (Uploaded, int64, error) {
	request := &execwirev1.GetMetadataRequest{}
	request.Path, request.RawPath = pathFields(u.path)
	response, err := u.client.files.GetMetadata(ctx, request)
	if err != nil {
		return Uploaded{}, 0, err
	}
	return Uploaded{SHA256: u.digest.Sum(nil), Metadata: response.GetMetadata()}, 0, nil
}

// received returns how much the server has, and whether it has completed this upload; 0
// if it does not know the upload, or completed an earlier one with the same id, whose file may be gone or have another
// mode. That one is forgotten, so that its answer is not mistaken for that of this
// upload.
func (u *upload) received(ctx context.Context) (offset int64, complete bool, err error) {
	response, err := u.client.files.GetUpload(ctx, &execwirev1.GetUploadRequest{UploadId: u.id})
	switch {
	case Reason(err) == execwirev1.ErrorReason_ERROR_REASON_UPLOAD_NOT_FOUND:
		return 0, false, nil
	case response.GetComplete() && !u.complete:
		return 0, false, u.forget(ctx)
	}
	return int64(response.GetReceivedBytes()), response.GetComplete(), err
}

type uploadStream = grpc.ClientStreamingClient[execwirev1.UploadFileRequest, execwirev1.UploadFileResponse]

// send sends everything after offset. CloseAndRecv returns the answer of the server.
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
			if u.options.OnProgress != nil && position > u.reported {
				u.reported = position
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

// ended returns nil for io.EOF, with which a stream reports that the server has
// answered.
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

// confirm drops buffered content that the server has received.
func (u *upload) confirm(ctx context.Context, position int64) {
	if u.source.kept() < confirmBytes || position < u.confirmedAt+confirmBytes {
		return
	}
	u.confirmedAt = position
	// If the request fails, the stream fails too.
	if received, _, err := u.received(ctx); err == nil {
		u.source.forget(received)
	}
}
