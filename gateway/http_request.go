package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// httpRequestParams are the parameters of http/request.
type httpRequestParams struct {
	Method         string              `param:"method"`
	URL            string              `param:"url"`
	Headers        []httpRequestHeader `param:"headers,optional"`
	Body           jsonrpc.Base64      `param:"bodyBase64,optional,nullable"`
	TimeoutMs      *uint64             `param:"timeoutMs,optional"`
	RequestID      string              `param:"requestId"`
	StreamResponse bool                `param:"streamResponse,optional"`
	RedirectPolicy redirectPolicy      `param:"redirectPolicy,optional"`

	place *httpPlace     // among those of the connection
	full  *jsonrpc.Error // why there is none
}

// httpRequestHeader is a header, whose value the reference also takes from the
// environment of the server.
type httpRequestHeader struct {
	Name        string  `param:"name"`
	Value       *string `param:"value,optional"`
	ValueEnvVar *string `param:"valueEnvVar,optional"`
}

// redirectPolicy is what becomes of a response that leads elsewhere.
type redirectPolicy execwirev1.RedirectPolicy

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *redirectPolicy) UnmarshalText(text []byte) error {
	switch string(text) {
	case "follow":
		*p = redirectPolicy(execwirev1.RedirectPolicy_REDIRECT_POLICY_FOLLOW)
	case "stop":
		*p = redirectPolicy(execwirev1.RedirectPolicy_REDIRECT_POLICY_STOP)
	default:
		return jsonrpc.UnknownVariant(string(text), "follow", "stop")
	}
	return nil
}

// check refuses what the core need not be asked for. The environment of a server
// has its secrets, which no client is given by way of somebody else's log.
func (p *httpRequestParams) check() *jsonrpc.Error {
	for i, h := range p.Headers {
		switch {
		case h.ValueEnvVar != nil:
			return &jsonrpc.Error{
				Code:    jsonrpc.CodeInvalidRequest,
				Message: "http/request header values are not taken from the environment of this server: send a value instead of valueEnvVar",
				Data:    jsonrpc.InvalidField{Reason: "INVALID_FIELD", Field: fmt.Sprintf("headers[%d].valueEnvVar", i)},
			}
		case h.Value == nil:
			return &jsonrpc.Error{
				Code: jsonrpc.CodeInvalidParams, Message: "missing field `value`",
				Data: jsonrpc.InvalidField{Reason: "INVALID_FIELD", Field: fmt.Sprintf("headers[%d].value", i)},
			}
		}
	}
	return nil
}

// forCore is the request as the core has it.
func (p *httpRequestParams) forCore() *execwirev1.FetchRequest {
	req := &execwirev1.FetchRequest{
		Method: p.Method, Url: p.URL, Body: p.Body, RedirectPolicy: execwirev1.RedirectPolicy(p.RedirectPolicy),
	}
	for _, h := range p.Headers {
		req.Headers = append(req.Headers, &execwirev1.HttpHeader{Name: h.Name, Value: *h.Value})
	}
	if p.TimeoutMs != nil {
		const most = math.MaxInt64 / uint64(time.Millisecond)
		req.Timeout = durationpb.New(time.Duration(min(*p.TimeoutMs, most)) * time.Millisecond)
	}
	return req
}

// run makes the request. The answer waits for all of the response, unless it is to
// be streamed.
func (p *httpRequestParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	if p.full != nil {
		return nil, p.full
	}
	response := &httpResponse{place: p.place}
	if failed := p.begin(ctx, r, response); failed != nil {
		response.place.leave()
		return nil, failed
	}
	if p.StreamResponse {
		return &httpStream{response: response, connection: r.connection, ctx: ctx, id: jsonrpc.AppendString(nil, p.RequestID)}, nil
	}
	if failed := response.gather(r.contentLimit()); failed != nil {
		response.place.leave()
		return nil, failed
	}
	if response.size > largeBody {
		return largeHTTPAnswer{response}, nil
	}
	return httpAnswer{response}, nil
}

// begin makes the request and waits for the head of the response.
func (p *httpRequestParams) begin(ctx context.Context, r *request, response *httpResponse) *jsonrpc.Error {
	req := p.forCore()
	if limit := r.environment.native.GetLimits().GetMessageBytes(); limit > 0 && uint64(proto.Size(req)) > limit {
		return messageTooLarge(int(limit), "bytes are in the request")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	response.place.cancel = cancel
	stream, err := r.http.Fetch(ctx, req)
	if err == nil {
		response.stream = stream
		var first *execwirev1.FetchResponse
		if first, err = stream.Recv(); err == nil {
			response.head = first.GetHead()
			return nil
		}
	}
	return p.failure(err)
}

// largeBody is what of a body is too much to be in memory twice, in bytes.
const largeBody = 1 << 20

// httpResponse is a response that begins to come.
type httpResponse struct {
	place  *httpPlace
	stream grpc.ServerStreamingClient[execwirev1.FetchResponse]
	head   *execwirev1.HttpHead
	body   [][]byte
	open   bool // the last piece of it is ours, and has room for small ones
	size   int
}

// gather takes the body, as far as there is memory for it, and no more than can
// be answered.
func (h *httpResponse) gather(limit int) *jsonrpc.Error {
	for {
		message, err := h.stream.Recv()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return bodyFailure(err)
		}
		if h.size += len(message.GetData()); h.size > limit {
			return bodyTooLarge(limit)
		}
		if failed := h.place.hold(len(message.GetData())); failed != nil {
			return failed
		}
		h.keep(message.GetData())
	}
}

func bodyTooLarge(limit int) *jsonrpc.Error {
	return &jsonrpc.Error{
		Code:    jsonrpc.CodeLimitReached,
		Message: fmt.Sprintf("the body is too large for one answer: limit is %d bytes here; ask for it with streamResponse", limit),
		Data:    map[string]any{"limit_bytes": limit},
	}
}

// largePiece is a piece of a body that is kept as it came, in bytes. Smaller ones
// are put together: what comes byte by byte takes no more than its bytes.
const largePiece = 32 << 10

func (h *httpResponse) keep(data []byte) {
	last := len(h.body) - 1
	switch {
	case len(data) >= largePiece:
		h.body, h.open = append(h.body, data), false
	case h.open && len(h.body[last]) < largePiece:
		h.body[last] = append(h.body[last], data...)
	default:
		h.body, h.open = append(h.body, bytes.Clone(data)), true
	}
}

// httpAnswer is the result of http/request: a whole response.
type httpAnswer struct{ *httpResponse }

func (a httpAnswer) appendTo(dst []byte) []byte {
	dst = appendHTTPHead(dst, a.head)
	return append(jsonrpc.AppendBase64(dst, bytes.Join(a.body, nil)), '}')
}

func (a httpAnswer) wasSaid() { a.place.leave() }

// largeHTTPAnswer is one whose body is large.
type largeHTTPAnswer struct{ *httpResponse }

func (a largeHTTPAnswer) streamTo(w io.Writer) error {
	defer a.place.leave()
	return streamBase64(w, string(appendHTTPHead(nil, a.head)), func() ([]byte, error) {
		if len(a.body) == 0 {
			return nil, nil
		}
		piece := a.body[0]
		a.body = a.body[1:]
		return piece, nil
	})
}

// appendHTTPHead appends the result up to the body. Values that are not text are
// left out, as the reference does.
func appendHTTPHead(dst []byte, head *execwirev1.HttpHead) []byte {
	dst = fmt.Appendf(dst, `{"status":%d,"headers":[`, head.GetStatus())
	comma := ""
	for _, h := range head.GetHeaders() {
		if len(h.GetRawValue()) > 0 || !isPlainText(h.GetValue()) {
			continue
		}
		dst = append(append(dst, comma...), `{"name":`...)
		dst = jsonrpc.AppendString(dst, h.GetName())
		dst = append(dst, `,"value":`...)
		dst = append(jsonrpc.AppendString(dst, h.GetValue()), '}')
		comma = ","
	}
	return append(dst, `],"bodyBase64":`...)
}

// isPlainText reports whether a value has visible ASCII, blanks and tabs only.
func isPlainText(value string) bool {
	return strings.IndexFunc(value, func(c rune) bool { return c != '\t' && (c < ' ' || c > '~') }) < 0
}
