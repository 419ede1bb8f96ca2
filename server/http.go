package server

import (
	"bytes"
	"context"
	"io"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/httpclient"
)

// httpService implements execwire.v1.HttpService; the proto documents its method.
type httpService struct {
	execwirev1.UnsafeHttpServiceServer
	server *Server
}

var _ execwirev1.HttpServiceServer = (*httpService)(nil)

// bodyBytes is the most of a body in one message.
const bodyBytes = 64 << 10

// Fetch implements the RPC.
func (s *httpService) Fetch(req *execwirev1.FetchRequest, stream grpc.ServerStreamingServer[execwirev1.FetchResponse]) error {
	client := s.server.cfg.HTTP
	if client == nil {
		return httpDisabled()
	}
	response, err := client.Do(stream.Context(), toHTTPRequest(caller(stream.Context()), req))
	if err != nil {
		return err
	}
	body := response.Body
	defer func() { _ = body.Close() }()
	head := &execwirev1.FetchResponse_Head{Head: toHTTPHead(response)}
	if err := stream.Send(&execwirev1.FetchResponse{Message: head}); err != nil {
		return err
	}
	return sendBody(stream, body) // may take long; does not keep the head
}

// sendBody sends the body as it arrives. Small pieces are copied, so that a message
// that waits for its reader does not keep a large buffer.
func sendBody(stream grpc.ServerStreamingServer[execwirev1.FetchResponse], body io.Reader) error {
	piece := make([]byte, bodyBytes)
	for {
		n, err := body.Read(piece)
		if n > 0 {
			data := piece[:n]
			if n <= bodyBytes/2 {
				data = bytes.Clone(data)
			} else {
				piece = make([]byte, bodyBytes)
			}
			if err := stream.Send(&execwirev1.FetchResponse{Message: &execwirev1.FetchResponse_Data{Data: data}}); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case stream.Context().Err() != nil:
			return context.Cause(stream.Context())
		}
	}
}

// httpDisabled returns the status of calls of HttpService if it is disabled.
func httpDisabled() error {
	return newStatus(codes.Unimplemented, execwirev1.ErrorReason_ERROR_REASON_HTTP_DISABLED, "requests over HTTP are switched off on this server: its settings disable and require_sandbox decide that")
}

// toHTTPRequest translates a request that passed validation.
func toHTTPRequest(owner string, m *execwirev1.FetchRequest) *httpclient.Request {
	r := &httpclient.Request{Owner: owner, Method: m.GetMethod(), URL: m.GetUrl(), Body: m.GetBody(), Timeout: optionalDuration(m.GetTimeout())}
	for _, h := range m.GetHeaders() {
		value := h.GetValue()
		if raw := h.GetRawValue(); len(raw) > 0 {
			value = string(raw)
		}
		r.Headers = append(r.Headers, httpclient.Header{Name: h.GetName(), Value: value})
	}
	if m.GetRedirectPolicy() == execwirev1.RedirectPolicy_REDIRECT_POLICY_STOP {
		r.Redirects = httpclient.Stop
	}
	return r
}

func toHTTPHead(response *httpclient.Response) *execwirev1.HttpHead {
	head := &execwirev1.HttpHead{Status: uint32(response.Status), Url: response.URL}
	for _, h := range response.Headers {
		value, raw := toUTF8(h.Value)
		name := strings.ToValidUTF8(h.Name, string(utf8.RuneError))
		head.Headers = append(head.Headers, &execwirev1.HttpHeader{Name: name, Value: value, RawValue: raw})
	}
	return head
}

// httpErrors translates the kinds of package httpclient; a test proves it
// complete.
var httpErrors = map[httpclient.Kind]translation{
	httpclient.InvalidRequest:  {codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD},
	httpclient.AddressRefused:  {codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_HTTP_ADDRESS_REFUSED},
	httpclient.Failed:          {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_HTTP_FAILED},
	httpclient.TimedOut:        {codes.DeadlineExceeded, execwirev1.ErrorReason_ERROR_REASON_HTTP_TIMED_OUT},
	httpclient.HeadTooLarge:    {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_HTTP_HEAD_TOO_LARGE},
	httpclient.BodyFailed:      {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_HTTP_BODY_FAILED},
	httpclient.TooManyRequests: {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_HTTP_REQUESTS},
}

func fromHTTP(err *httpclient.Error) error {
	if err.Kind == httpclient.InvalidRequest {
		return invalidField(err.Field, err.Cause())
	}
	f := translate(httpErrors, err.Kind).failure(err.Error()).set("url", err.URL).set("cause", err.Cause())
	f.setErrno(err.Err)
	if err.Kind == httpclient.AddressRefused {
		f.set("address", err.Address.String())
	}
	if q, ok := httpQuotas[err.Kind]; ok {
		f.limit(q, int64(err.Limit))
	}
	return f.status()
}
