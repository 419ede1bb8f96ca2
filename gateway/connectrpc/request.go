package connectrpc

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/execwire/execwire/internal/httpstall"
	"github.com/execwire/execwire/internal/tracecontext"
)

// request is the HTTP request of a call. It is in the context of the call.
type request struct {
	begin    func(*http.Request, string) (Call, error) // Config.Begin
	http     *http.Request                             // for package connect
	body     *body
	response *response
	call     Call // set by admit
	// bounded is the ResponseWriter of package wsserver. Without it, a response to a stream
	// waits for the end of the stream.
	bounded *httpstall.Writer
}

type requestKey struct{}

func requestOf(ctx context.Context) *request { return ctx.Value(requestKey{}).(*request) }

// compressionOffers are the headers with which clients offer to decompress responses.
var compressionOffers = []string{"Accept-Encoding", "Connect-Accept-Encoding", "Grpc-Accept-Encoding"}

// envelopeBytes is what precedes a message of a stream.
const envelopeBytes = 5

// newRequest returns the request r. If limit is not 0, its only message has at most that
// many bytes.
//
// A response is compressed only if the request was, as with gRPC: clients offer to
// decompress as a matter of course, and to compress output takes longer than to send it.
func newRequest(w http.ResponseWriter, r *http.Request, begin func(*http.Request, string) (Call, error), limit int) *request {
	in := &request{begin: begin}
	in.bounded, _ = w.(*httpstall.Writer)
	in.body = &body{ReadCloser: r.Body}
	if limit > 0 {
		// One byte more, so that package connect explains it.
		in.body.ReadCloser = http.MaxBytesReader(w, r.Body, int64(limit+envelopeBytes+1))
	}
	in.body.ended.Store(r.Body == http.NoBody)
	in.response = &response{ResponseWriter: w, in: in}
	in.http = r.WithContext(context.WithValue(r.Context(), requestKey{}, in)) // a copy
	in.http.Body = in.body
	for _, offer := range compressionOffers {
		in.http.Header.Del(offer)
	}
	return in
}

// admit authenticates the call. Its client may then take any time for the responses, as
// with gRPC: it delays only itself.
func (in *request) admit(ctx context.Context, method string) error {
	var err error
	if in.call, err = in.begin(in.http.WithContext(ctx), method); err != nil {
		return err
	}
	if in.bounded != nil {
		in.bounded.LiftStallLimit()
	}
	return nil
}

// end is called when the call has ended.
func (in *request) end() {
	in.response.begin()
	if in.call.End != nil {
		in.call.End()
	}
}

// stopReading makes the pending read of the body fail, and later ones. The connection
// then serves no other request, whether or not the body had ended just before.
func (in *request) stopReading() {
	if in.bounded != nil {
		in.bounded.StopReading()
		in.response.Header().Set("Connection", "close")
	}
}

// outgoing returns the context of the forwarded call. Only the trace context of the
// headers is passed on: credentials have served their purpose, and the server reads
// nothing else.
func (in *request) outgoing(ctx context.Context) context.Context {
	header := in.http.Header
	trace := tracecontext.Parse(header.Get(tracecontext.ParentKey), strings.Join(header.Values(tracecontext.StateKey), ","))
	return tracecontext.NewOutgoing(ctx, trace)
}

// body is the body of a request.
type body struct {
	io.ReadCloser
	ended atomic.Bool // read to its end
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.ended.Store(true)
	}
	return n, err
}

// Close implements io.Closer. It does nothing, since the HTTP server closes the body:
// here it would wait for the rest of it, and the client for its response.
func (b *body) Close() error { return nil }

// response is the response to a request. It explains refusals of package connect that
// have no body.
type response struct {
	http.ResponseWriter
	in    *request
	begun bool
}

// WriteHeader implements http.ResponseWriter.
func (w *response) WriteHeader(code int) {
	w.begin()
	text := ""
	switch code {
	case http.StatusUnsupportedMediaType:
		text = "the content type " + strconv.Quote(w.in.http.Header.Get("Content-Type")) + " is not supported here"
		if accepted := w.Header().Get("Accept-Post"); accepted != "" {
			text += ": use one of " + accepted
		}
	case http.StatusMethodNotAllowed:
		text = "methods of services are called by " + w.Header().Get("Allow")
	default:
		w.ResponseWriter.WriteHeader(code)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.ResponseWriter.WriteHeader(code)
	_, _ = io.WriteString(w.ResponseWriter, text+"\n") // the client is gone
}

// Write implements io.Writer.
func (w *response) Write(p []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(p)
}

// begin is called before the header is written. If the body has not been read to its
// end, the HTTP server would otherwise wait for it before it sends the response.
func (w *response) begin() {
	if !w.begun && !w.in.body.ended.Load() {
		w.Header().Set("Connection", "close")
	}
	w.begun = true
}

// Flush implements http.Flusher.
func (w *response) Flush() {
	w.begin()
	_ = http.NewResponseController(w.ResponseWriter).Flush() // the client is gone
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }
