package httpcalls

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// Request is http/request, with its parameters.
type Request = httpRequestParams

// httpRequestParams has the name that the reference has in errors.
type httpRequestParams struct {
	Method         string              `param:"method"`
	URL            string              `param:"url"`
	Headers        []httpRequestHeader `param:"headers,optional"`
	Body           jsonrpc.Base64      `param:"bodyBase64,optional,nullable"`
	TimeoutMs      *uint64             `param:"timeoutMs,optional"`
	RequestID      string              `param:"requestId"`
	StreamResponse bool                `param:"streamResponse,optional"`
	RedirectPolicy redirectPolicy      `param:"redirectPolicy,optional"`

	slot *slot          // reserved in the order of requests
	full *jsonrpc.Error // why slot is nil
}

// httpRequestHeader is a header. The reference can also take its value from the
// server's environment.
type httpRequestHeader struct {
	Name        string  `param:"name"`
	Value       *string `param:"value,optional"`
	ValueEnvVar *string `param:"valueEnvVar,optional"`
}

// redirectPolicy says whether to follow redirects.
type redirectPolicy execwirev1.RedirectPolicy

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *redirectPolicy) UnmarshalText(text []byte) error {
	return param.Variant((*execwirev1.RedirectPolicy)(p), text, []string{"follow", "stop"},
		execwirev1.RedirectPolicy_REDIRECT_POLICY_FOLLOW, execwirev1.RedirectPolicy_REDIRECT_POLICY_STOP)
}

// Check validates the parameters. Headers from the server's environment are refused: it
// has secrets, which a client could read in another server's log.
func (p *httpRequestParams) Check() *jsonrpc.Error {
	for i, h := range p.Headers {
		switch {
		case h.ValueEnvVar != nil:
			return param.NewError(jsonrpc.CodeInvalidRequest, fmt.Sprintf("headers[%d].valueEnvVar", i),
				"http/request header values are not taken from the environment of this server: send a value instead of valueEnvVar")
		case h.Value == nil:
			return param.Missing(fmt.Sprintf("headers[%d]", i), "value")
		}
	}
	return nil
}

// fetchRequest returns the request for the server.
func (p *httpRequestParams) fetchRequest() *execwirev1.FetchRequest {
	req := &execwirev1.FetchRequest{
		Method: p.Method, Url: p.URL, Body: p.Body, RedirectPolicy: execwirev1.RedirectPolicy(p.RedirectPolicy),
	}
	for _, h := range p.Headers {
		req.Headers = append(req.Headers, &execwirev1.HttpHeader{Name: h.Name, Value: *h.Value})
	}
	if p.TimeoutMs != nil {
		req.Timeout = durationpb.New(param.Milliseconds(*p.TimeoutMs))
	}
	return req
}

// Run makes a request. Unless the response is streamed, the answer has all of it.
func (s *Service) Run(ctx context.Context, r *Request) (any, *jsonrpc.Error) {
	if r.full != nil {
		return nil, r.full
	}
	response := &response{slot: r.slot}
	if failed := s.begin(ctx, r, response); failed != nil {
		r.slot.release()
		return nil, failed
	}
	if r.StreamResponse {
		return &bodyStream{response: response, connection: s.connection, ctx: ctx, id: jsonrpc.AppendString(nil, r.RequestID)}, nil
	}
	if failed := response.readBody(s.connection.ContentLimit()); failed != nil {
		r.slot.release()
		return nil, failed
	}
	return call.Data(string(appendHead(nil, response.head)), r.slot.release, response.body...), nil
}

// begin sends the request and waits for the head of the response.
func (s *Service) begin(ctx context.Context, r *Request, response *response) *jsonrpc.Error {
	req := r.fetchRequest()
	if s.messageBytes > 0 && uint64(proto.Size(req)) > s.messageBytes {
		return rpcerror.MessageTooLarge(int(s.messageBytes), "bytes are in the request")
	}
	ctx, response.slot.cancel = context.WithCancelCause(ctx)
	stream, err := s.client.Fetch(ctx, req)
	if err == nil {
		response.stream = stream
		var first *execwirev1.FetchResponse
		if first, err = stream.Recv(); err == nil {
			response.head = first.GetHead()
			return nil
		}
	}
	return r.failure(err)
}

// response is a response whose head has arrived.
type response struct {
	slot   *slot
	stream grpc.ServerStreamingClient[execwirev1.FetchResponse]
	head   *execwirev1.HttpHead
	body   [][]byte
	open   bool // the last piece is a buffer of ours with free capacity
	size   int
}

// readBody reads the body, within the memory limits and the limit of an answer.
func (h *response) readBody(limit int) *jsonrpc.Error {
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
		if failed := h.slot.reserve(len(message.GetData())); failed != nil {
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

// largePiece is the size in bytes from which a piece of the body is kept as it arrived.
// Smaller ones are copied together, so that a body in single bytes takes only its size.
const largePiece = 32 << 10

func (h *response) keep(data []byte) {
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

// appendHead appends the result before the body. Values that are not text are
// omitted, as in the reference.
func appendHead(dst []byte, head *execwirev1.HttpHead) []byte {
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

// isPlainText reports whether a value has visible ASCII, spaces and tabs only.
func isPlainText(value string) bool {
	return strings.IndexFunc(value, func(c rune) bool { return c != '\t' && (c < ' ' || c > '~') }) < 0
}

// bodyStream is the result of http/request with a streamed response: its body follows
// as notifications. The server sends it as fast as the client reads.
type bodyStream struct {
	response   *response
	connection call.Connection
	ctx        context.Context // of the request
	id         []byte          // of the request, as JSON
	seq        uint64          // of the last notification
}

// AppendTo implements [call.Appendable].
func (s *bodyStream) AppendTo(dst []byte) []byte {
	return append(appendHead(dst, s.response.head), `""}`...)
}

// Sent implements [call.SendObserver].
func (s *bodyStream) Sent() {
	s.response.head = nil // sent, and no longer needed
	s.connection.Spawn(s.sendBody)
}

// sendBody sends the body and its end, unless the connection ends.
func (s *bodyStream) sendBody() {
	defer s.response.slot.release()
	for {
		message, err := s.response.stream.Recv()
		if s.ctx.Err() != nil || s.send(message, err) != nil || err != nil {
			return
		}
	}
}

// send sends one notification. After the last one, the client can reuse the request id.
// It blocks while the client does not read.
func (s *bodyStream) send(message *execwirev1.FetchResponse, failed error) error {
	return s.connection.Send(func(dst []byte) []byte {
		if failed != nil {
			s.response.slot.release()
		}
		s.seq++
		return s.appendDelta(dst, message.GetData(), failed)
	})
}

func (s *bodyStream) appendDelta(dst, data []byte, failed error) []byte {
	dst = append(dst, `{"method":"http/request/bodyDelta","params":{"requestId":`...)
	dst = append(dst, s.id...)
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendUint(dst, s.seq, 10)
	dst = append(dst, `,"deltaBase64":`...)
	dst = jsonrpc.AppendBase64(dst, data)
	dst = append(dst, `,"done":`...)
	dst = strconv.AppendBool(dst, failed != nil)
	dst = append(dst, `,"error":`...)
	if failed == nil || failed == io.EOF {
		dst = append(dst, `null`...)
	} else {
		dst = jsonrpc.AppendString(dst, bodyError(failed))
	}
	return append(dst, `}}`...)
}
