package filehttp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
)

// Headers of the state of an upload, as in the draft of resumable uploads.
const (
	uploadOffset   = "Upload-Offset"
	uploadComplete = "Upload-Complete"
)

const (
	// uploadPieceBytes is the size of the buffers of an upload, and minReadBytes how much
	// of one must be free for the next read.
	uploadPieceBytes = 64 << 10
	minReadBytes     = 4 << 10
)

// upload is what a PUT asks for.
type upload struct {
	head     *execwirev1.UploadHead
	length   int64 // of the body; -1 is unknown
	complete bool  // the body ends the file
	sha256   []byte
}

// put serves PUT of a file.
func (q *request) put() error {
	up, err := q.parseUpload()
	if err != nil {
		return err
	}
	if q.URL.Query().Get("parents") == "true" {
		req := &execwirev1.CreateDirectoryRequest{Recursive: true}
		req.Path, req.RawPath = wirePath(path.Dir(q.path))
		if _, err := q.files.CreateDirectory(q.Context(), req); err != nil {
			return err
		}
	}
	// The end of the connection ends the body, and not the call: what came before is kept
	// of an upload with an id. Without one nothing remains of a call that is canceled.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(q.Context()))
	defer cancel(nil)
	stream, err := q.files.UploadFile(ctx)
	if err != nil {
		return err
	}
	response, err := q.send(stream, up)
	if err != nil {
		cancel(err)
		return err
	}
	h := q.w.Header()
	if !up.complete {
		return q.uploadState()
	}
	if tag := etag(response.GetMetadata().GetVersion()); tag != "" {
		h.Set("ETag", tag)
	}
	h.Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(response.GetSha256())+":")
	h.Set(uploadComplete, "?1")
	code := http.StatusOK
	if response.GetCreated() {
		code = http.StatusCreated
	}
	q.w.WriteHeader(code)
	return nil
}

// parseUpload returns what a PUT asks for.
func (q *request) parseUpload() (*upload, error) {
	up := &upload{head: &execwirev1.UploadHead{Mode: execwirev1.UploadMode_UPLOAD_MODE_REPLACE, UploadId: q.scopedUploadID()}, length: q.ContentLength, complete: true}
	up.head.Path, up.head.RawPath = wirePath(q.path)
	for _, name := range []string{"Content-Encoding", "If-Modified-Since", "If-Unmodified-Since", "If-Range"} {
		if q.Header.Get(name) != "" {
			return nil, refusal(http.StatusBadRequest, name+" is not supported with PUT: leave it out")
		}
	}
	if q.access.Signed && q.URL.Query().Has("parents") {
		return nil, refusal(http.StatusForbidden, "a signed URL creates no parent directories: create them before")
	}
	if err := q.parseRange(up); err != nil {
		return nil, err
	}
	if err := q.parseDigests(up); err != nil {
		return nil, err
	}
	return up, q.parseConditions(up.head)
}

// scopedUploadID returns the id of the upload at the server. By signed URLs of a path
// clients reach only uploads of that path that were made by such URLs.
func (q *request) scopedUploadID() string {
	if q.uploadID == "" || !q.access.Signed {
		return q.uploadID
	}
	sum := sha256.Sum256([]byte(q.path))
	return "url-" + hex.EncodeToString(sum[:8]) + "-" + q.uploadID
}

// parseRange reads Content-Range, of the form "bytes FIRST-LAST/SIZE", where SIZE is * while
// it is not known, and checks the size.
func (q *request) parseRange(up *upload) error {
	size := q.ContentLength // -1 if unknown
	if value := q.Header.Get("Content-Range"); value != "" {
		var first, last uint64
		var total string
		n, _ := fmt.Sscanf(value, "bytes %d-%d/%s", &first, &last, &total)
		known, err := strconv.ParseUint(total, 10, 63)
		switch {
		case n != 3 || last < first || last >= 1<<63-1 || total != "*" && (err != nil || known <= last):
			return refusal(http.StatusBadRequest, fmt.Sprintf("Content-Range cannot be %.80q: write bytes FIRST-LAST/SIZE, or */ in place of the size", value))
		case q.uploadID == "":
			return refusal(http.StatusBadRequest, "Content-Range is for uploads in several parts: add ?upload_id=ID with an id of your choice")
		case size >= 0 && uint64(size) != last-first+1:
			return refusal(http.StatusBadRequest, "Content-Range and Content-Length disagree")
		}
		up.head.Offset, up.length, up.complete = first, int64(last-first+1), total != "*" && known == last+1
		size = int64(last + 1)
		if total != "*" {
			size = int64(known)
		}
	}
	if most := q.access.MaxBytes; most != nil && size >= 0 && uint64(size) > *most {
		return q.tooLarge()
	}
	return nil
}

func (q *request) tooLarge() error {
	return refusal(http.StatusRequestEntityTooLarge, fmt.Sprintf("the file is larger than the %d bytes that the URL was signed for", *q.access.MaxBytes))
}

// parseDigests reads the SHA-256 of the file.
func (q *request) parseDigests(up *upload) error {
	for _, name := range []string{"Repr-Digest", "Content-Digest"} {
		value := strings.Join(q.Header.Values(name), ",")
		if value == "" {
			continue
		}
		if q.Header.Get("Content-Range") != "" && (name == "Content-Digest" || !up.complete) {
			return refusal(http.StatusBadRequest, name+" is not supported here: send Repr-Digest, of the whole file, with its last part")
		}
		var digest []byte
		for member := range strings.SplitSeq(value, ",") {
			algorithm, encoded, _ := strings.Cut(strings.TrimSpace(member), "=")
			if algorithm == "sha-256" && len(encoded) > 2 && encoded[0] == ':' && encoded[len(encoded)-1] == ':' {
				digest, _ = base64.StdEncoding.DecodeString(encoded[1 : len(encoded)-1])
			}
		}
		if len(digest) != sha256.Size {
			return refusal(http.StatusBadRequest, name+" has no SHA-256: write sha-256=:BASE64:")
		}
		if up.sha256 != nil && string(up.sha256) != string(digest) {
			return refusal(http.StatusBadRequest, "Repr-Digest and Content-Digest disagree")
		}
		up.sha256 = digest
	}
	return nil
}

// parseConditions reads If-Match and If-None-Match.
func (q *request) parseConditions(head *execwirev1.UploadHead) error {
	match, none := strings.Join(q.Header.Values("If-Match"), ","), strings.Join(q.Header.Values("If-None-Match"), ",")
	switch {
	case none != "" && (none != "*" || match != ""):
		return refusal(http.StatusBadRequest, "If-None-Match with PUT has to be *, without If-Match")
	case none != "":
		head.IfMissing = true
		return nil
	case match == "":
		return nil
	}
	versions, ok := versionsOf(match)
	switch {
	case !ok:
		return refusal(http.StatusBadRequest, fmt.Sprintf("If-Match cannot be %.80q: write an ETag", match))
	case len(versions) == 1 && versions[0] != "*":
		head.IfMatchVersion = versions[0]
		return nil
	}
	// One of several, or any: that of now.
	req := &execwirev1.GetMetadataRequest{}
	req.Path, req.RawPath = wirePath(q.path)
	found, err := q.files.GetMetadata(q.Context(), req)
	if err != nil && errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND {
		return err
	}
	for _, version := range versions {
		if now := found.GetMetadata().GetVersion(); now != "" && (version == "*" || version == now) {
			head.IfMatchVersion = now
			return nil
		}
	}
	return refusal(http.StatusPreconditionFailed, "the file does not exist, or has another ETag")
}

// versionsOf returns the versions in a list of ETags. Weak ones match nothing.
func versionsOf(list string) (versions []string, ok bool) {
	for member := range strings.SplitSeq(list, ",") {
		member = strings.TrimSpace(member)
		text, quoted := strings.CutPrefix(member, `"`)
		text, closed := strings.CutSuffix(text, `"`)
		switch {
		case member == "*":
			versions = append(versions, "*")
		case quoted && closed && text != "":
			versions = append(versions, text)
		case !strings.HasPrefix(member, "W/"):
			return nil, false
		}
	}
	return versions, true
}

// send sends the body to the server. A server that needs no more of it answers at once.
func (q *request) send(stream grpc.ClientStreamingClient[execwirev1.UploadFileRequest, execwirev1.UploadFileResponse], up *upload) (*execwirev1.UploadFileResponse, error) {
	err := stream.Send(&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: up.head}})
	var failed error
	if err == nil {
		failed = q.sendBody(up, func(data []byte) error {
			err = stream.Send(&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Data{Data: data}})
			return err
		})
	}
	switch {
	case err != nil: // the answer says why
	case failed != nil && up.head.GetUploadId() == "":
		return nil, failed
	case failed == nil && up.complete:
		_ = stream.Send(&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_End{End: &execwirev1.UploadEnd{Sha256: up.sha256}}})
	}
	// Without an end, the server keeps an upload with an id, with everything that was sent.
	response, err := stream.CloseAndRecv()
	switch {
	case failed != nil && !errors.Is(failed, io.EOF):
		return nil, failed
	case !up.complete && errorinfo.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE:
		return nil, nil
	}
	return response, err
}

// sendBody passes the pieces of the body to send, and returns its error, or why there is no
// more.
func (q *request) sendBody(up *upload, send func([]byte) error) error {
	var free []byte
	for received := int64(0); ; {
		if len(free) < minReadBytes {
			free = make([]byte, uploadPieceBytes) // what was sent belongs to the server
		}
		if q.Context().Err() != nil { // also of a connection that has to make place for others
			return refusal(http.StatusBadRequest, "the body is incomplete")
		}
		n, err := q.Body.Read(free)
		received += int64(n)
		most := q.access.MaxBytes
		switch {
		case most != nil && up.head.GetOffset()+uint64(received) > *most:
			return q.tooLarge()
		case up.length >= 0 && received > up.length, err == io.EOF && up.length >= 0 && received < up.length:
			return refusal(http.StatusBadRequest, "the body has another length than Content-Range")
		}
		if n > 0 {
			if err := send(free[:n:n]); err != nil {
				return err
			}
			free = free[n:]
		}
		switch {
		case err == io.EOF:
			return nil
		case isTimeout(err):
			return refusal(http.StatusRequestTimeout, "nothing of the body came for a while")
		case err != nil:
			return refusal(http.StatusBadRequest, "the body is incomplete")
		}
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// uploadState answers how much was received of an upload.
func (q *request) uploadState() error {
	state, err := q.files.GetUpload(q.Context(), &execwirev1.GetUploadRequest{UploadId: q.scopedUploadID()})
	if err != nil {
		return err
	}
	if of := cmp.Or(string(state.GetRawPath()), state.GetPath()); of != path.Clean(q.path) {
		return refusal(http.StatusNotFound, "the upload is for another path")
	}
	h := q.w.Header()
	h.Set(uploadOffset, strconv.FormatUint(state.GetReceivedBytes(), 10))
	code, complete := http.StatusNoContent, "?0"
	if state.GetComplete() {
		complete = "?1"
	}
	if q.Method == http.MethodPut {
		code = http.StatusAccepted
	}
	h.Set(uploadComplete, complete)
	h.Set("Cache-Control", "no-store")
	q.w.WriteHeader(code)
	return nil
}
