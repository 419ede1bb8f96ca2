package filehttp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const (
	// tailBytes is how much of a file is sent only after it is known that the file did not
	// change: the last bytes. A smaller file is read before anything is sent.
	tailBytes = 64 << 10
	// pieceBytes is how much is sent at once. The server bounds the time for it.
	pieceBytes = 256 << 10
	// timestampGranularity is the age of a modification from which a later one has
	// another modification time in whole seconds.
	timestampGranularity = 2 * time.Second
)

// inline are the types that a browser may show: none of them can run a script. All others
// are downloaded.
var inline = []string{
	"text/plain", "image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp", "image/vnd.microsoft.icon",
	"audio/mpeg", "audio/ogg", "audio/wav", "audio/flac", "audio/aac", "video/mp4", "video/webm", "video/ogg",
}

// get serves GET and HEAD of a file.
func (q *request) get() error {
	file, err := q.open()
	if err != nil {
		return err
	}
	defer file.close()
	var content io.ReadSeeker = file
	if size := file.size; size <= tailBytes {
		// The size of files in /proc and /sys is not that of their content.
		start := make([]byte, cmp.Or(size, tailBytes)+1)
		n, err := io.ReadFull(file, start)
		switch {
		case err == nil && size == 0:
			return q.sendUnsized(start, file)
		case err == nil:
			return errChanged
		case err != io.EOF && err != io.ErrUnexpectedEOF:
			return err
		}
		if err := file.unchanged(); err != nil {
			return err
		}
		content = bytes.NewReader(start[:n])
	}
	q.setContentHeaders()
	if tag := etag(file.metadata.GetVersion()); tag != "" {
		q.w.Header().Set("ETag", tag)
	}
	modified := file.metadata.GetModifyTime().AsTime()
	if time.Since(modified) < timestampGranularity {
		modified = time.Time{}
	}
	sending := &body{ResponseWriter: q.w, q: q, file: file}
	http.ServeContent(sending, q.withSimpleRange(), "", modified, content)
	if sending.err != nil {
		panic(http.ErrAbortHandler) // the client must not take what it got for the file
	}
	return nil
}

var errChanged = refusal(http.StatusConflict, "the file was changed while it was read: try again")

// withSimpleRange returns the request without a Range that is answered with the whole
// file: several ranges, or one that depends on a date, which is too coarse.
func (q *request) withSimpleRange() *http.Request {
	condition := q.Header.Get("If-Range")
	if !strings.Contains(q.Header.Get("Range"), ",") && (condition == "" || strings.HasPrefix(condition, `"`)) {
		return q.Request
	}
	r := q.Clone(q.Context())
	r.Header.Del("Range")
	return r
}

// setContentHeaders sets the headers that depend on the name of the file.
func (q *request) setContentHeaders() {
	h, name := q.w.Header(), path.Base(q.path)
	kind := cmp.Or(mime.TypeByExtension(path.Ext(name)), "application/octet-stream")
	h.Set("Content-Type", kind)
	base, _, _ := strings.Cut(kind, ";")
	disposition := "attachment"
	if slices.Contains(inline, base) {
		disposition = "inline"
	}
	if named := mime.FormatMediaType(disposition, map[string]string{"filename": strings.ToValidUTF8(name, "\uFFFD")}); named != "" {
		disposition = named
	}
	h.Set("Content-Disposition", disposition)
	if q.access.Signed {
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	}
}

// etag returns the ETag of a version; empty if there is none.
func etag(version string) string {
	if version == "" || strings.ContainsFunc(version, func(c rune) bool { return c <= ' ' || c == '"' || c >= 0x7f }) {
		return ""
	}
	return `"` + version + `"`
}

// sendUnsized sends a file whose size is not known, after its start.
func (q *request) sendUnsized(start []byte, rest *openFile) error {
	q.setContentHeaders()
	q.w.WriteHeader(http.StatusOK)
	if q.Method == http.MethodHead {
		return nil
	}
	sent, err := io.Copy(q.w, io.MultiReader(bytes.NewReader(start), rest))
	rest.noteSent(sent, err)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// body sends the content of a file. It sends the last bytes when all were read and the
// file did not change.
type body struct {
	http.ResponseWriter
	q    *request
	file *openFile
	err  error // why the body is incomplete
}

// ReadFrom implements io.ReaderFrom. http.ServeContent calls it once, with the part to send.
func (b *body) ReadFrom(part io.Reader) (sent int64, err error) {
	left, ok := part.(*io.LimitedReader)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	defer func() {
		b.err = err
		b.file.noteSent(sent, err)
	}()
	if left.R == io.Reader(b.file) {
		b.file.expect(left.N)
	}
	for left.N > tailBytes {
		if ended := b.q.Context(); ended.Err() != nil {
			return sent, context.Cause(ended)
		}
		n, err := io.CopyN(b.ResponseWriter, b.source(left.R), min(left.N-tailBytes, pieceBytes))
		sent, left.N = sent+n, left.N-n
		if err != nil {
			return sent, err // io.EOF if the file is shorter than it was
		}
	}
	last := make([]byte, left.N)
	if _, err := io.ReadFull(left, last); err != nil {
		return sent, err
	}
	if left.R == io.Reader(b.file) {
		if err := b.file.unchanged(); err != nil {
			return sent, err
		}
	}
	n, err := b.Write(last)
	return sent + int64(n), err
}

// source returns what is read: net/http sends an *os.File without copying it.
func (b *body) source(from io.Reader) io.Reader {
	if from == io.Reader(b.file) && b.file.local != nil {
		return b.file.local
	}
	return from
}

var _ io.ReaderFrom = (*body)(nil)

// downloadRequest returns the request for a part of the file.
func (q *request) downloadRequest() *execwirev1.DownloadFileRequest {
	req := &execwirev1.DownloadFileRequest{FailIfChanged: true}
	req.Path, req.RawPath = wirePath(q.path)
	return req
}
