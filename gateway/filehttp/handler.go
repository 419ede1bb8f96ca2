// Package filehttp serves files over HTTP: GET, HEAD and PUT of /v1/files/PATH. It is a
// client of FileSystemService, which authorizes, confines and limits its calls.
package filehttp

import (
	"context"
	"net/http"
	"strings"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Access is what a request may do.
type Access struct {
	// Calls makes the calls of the request.
	Calls grpc.ClientConnInterface
	// Context replaces that of the request: it also ends when the server stops. nil does
	// not.
	Context context.Context
	// End is called when the response is complete, unless it is nil.
	End func()
	// Sent is called with the number of bytes of a file that were sent, and that the server
	// does not know of because it has passed on the open file. err is why they are not all
	// that were asked for. nil is not called.
	Sent func(bytes int64, err error)
	// Signed is set for a request by a signed URL.
	Signed bool
	// MaxBytes is the largest file that the request may upload; nil is any.
	MaxBytes *uint64
}

// Config configures a [Handler].
type Config struct {
	// Prefix is the path before that of a file, without a slash at the end.
	Prefix string
	// Begin authenticates a request for the file at an absolute path. The method is what a
	// signed URL is signed for: PUT for a request that uploads, or asks for the state of
	// an upload, and otherwise GET. The error is one of the server, a status. It is called
	// concurrently.
	Begin func(r *http.Request, method, path string) (Access, error)
}

// Handler serves files. The server bounds how long a client may delay the next part of a
// body, and has checked Host and Origin. It may be used concurrently.
type Handler struct{ config Config }

// NewHandler returns a handler. All of the configuration must be set.
func NewHandler(config Config) *Handler { return &Handler{config: config} }

// request is a request with what was found out about it.
type request struct {
	*http.Request
	prefix   string // Config.Prefix
	w        http.ResponseWriter
	path     string // of the file
	uploadID string
	access   Access
	files    execwirev1.FileSystemServiceClient
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setSafetyHeaders(w.Header())
	q := &request{Request: r, prefix: h.config.Prefix, w: w, uploadID: r.URL.Query().Get("upload_id")}
	serve, signedFor := q.get, http.MethodGet
	switch {
	case r.Method == http.MethodPut:
		serve, signedFor = q.put, http.MethodPut
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD, PUT")
		q.answer(refusal(http.StatusMethodNotAllowed, "files are read with GET or HEAD, and written with PUT: use FileSystemService for everything else, such as RemovePath"))
		return
	case q.uploadID != "":
		serve, signedFor = q.uploadState, http.MethodPut
	}
	err := q.findPath()
	if err == nil {
		q.access, err = h.config.Begin(r, signedFor, q.path)
	}
	if q.access.End != nil {
		defer q.access.End()
	}
	if q.access.Context != nil {
		q.Request = r.WithContext(q.access.Context)
	}
	if err == nil && q.fromOtherSite() {
		err = refusal(http.StatusForbidden, "another site may not embed files: sign a URL with SignFileURL, or allow its origin")
	}
	if err == nil {
		q.files = execwirev1.NewFileSystemServiceClient(q.access.Calls)
		err = serve()
	}
	if err != nil {
		q.answer(err)
	}
}

// setSafetyHeaders sets what keeps a file from acting as a page of the server's origin,
// and from being kept or passed on by others. A request by a signed URL changes the policy
// of resources.
func setSafetyHeaders(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "private, no-cache")
}

// fromOtherSite reports whether a page of another site makes a browser request the file
// as an image, a script or the like, which has no Origin. On loopback such a request needs
// no credential. A signed URL may be used anywhere.
func (q *request) fromOtherSite() bool {
	if q.access.Signed || q.Header.Get("Origin") != "" { // which was allowed
		return false
	}
	site := q.Header.Get("Sec-Fetch-Site")
	return site != "" && site != "same-origin" && site != "none"
}

// findPath sets the path of the file, which net/http has decoded once.
func (q *request) findPath() error {
	path := strings.TrimPrefix(q.URL.Path, q.prefix)
	if !strings.HasPrefix(path, "/") || path == "/" {
		return refusal(http.StatusNotFound, "the path of the file is missing: "+q.prefix+"/PATH")
	}
	if strings.ContainsRune(path, 0) {
		return refusal(http.StatusBadRequest, "the path has a NUL in it")
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return refusal(http.StatusBadRequest, "the path has a segment "+segment+": give the path without it")
		}
	}
	if q.Method == http.MethodPut && strings.HasSuffix(path, "/") {
		return refusal(http.StatusBadRequest, "the path ends in a slash: give that of a file")
	}
	q.path = path
	return nil
}
