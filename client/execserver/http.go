package execserver

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// maxBodyQueue is how much of the body of a response may wait for who asked for it,
// in bytes. Servers of the reference send as fast as they can; one that is read more
// slowly than that breaks off.
const maxBodyQueue = 16 << 20

// httpService makes requests over HTTP from where the server is.
type httpService struct {
	execwirev1.UnimplementedHttpServiceServer
	conn *Conn
}

type httpHeader struct {
	Name  string `json:"name"  param:"name"`
	Value string `json:"value" param:"value"`
}

type httpParams struct {
	Method         string       `json:"method"`
	URL            string       `json:"url"`
	Headers        []httpHeader `json:"headers"`
	Body           []byte       `json:"bodyBase64,omitempty"`
	TimeoutMs      *int64       `json:"timeoutMs,omitempty"`
	RequestID      string       `json:"requestId"`
	StreamResponse bool         `json:"streamResponse"`
	RedirectPolicy string       `json:"redirectPolicy,omitempty"`
}

type httpResult struct {
	Status  uint32         `param:"status"`
	Headers []httpHeader   `param:"headers"`
	Body    jsonrpc.Base64 `param:"bodyBase64,optional,nullable"`
}

type bodyDelta struct {
	RequestID string         `param:"requestId"`
	Delta     jsonrpc.Base64 `param:"deltaBase64,optional,nullable"`
	Done      bool           `param:"done,optional"`
	Error     *string        `param:"error"`
}

// Fetch implements HttpServiceServer.
func (s *httpService) Fetch(request *execwirev1.FetchRequest, stream grpc.ServerStreamingServer[execwirev1.FetchResponse]) error {
	ctx := stream.Context()
	l, err := s.conn.current(ctx)
	if err != nil {
		return err
	}
	params, err := s.params(request, l)
	if err != nil {
		return err
	}
	body := newBodyQueue(params.RequestID)
	cancel := s.conn.subscribe("http/request/bodyDelta", body.take)
	defer cancel()
	var result httpResult
	if err := s.conn.callOn(ctx, l, s.conn.places, "http/request", params, &result); err != nil {
		return err
	}
	head := &execwirev1.HttpHead{Status: result.Status, Url: request.GetUrl()}
	for _, h := range result.Headers {
		head.Headers = append(head.Headers, &execwirev1.HttpHeader{Name: h.Name, Value: h.Value})
	}
	if err := stream.Send(&execwirev1.FetchResponse{Message: &execwirev1.FetchResponse_Head{Head: head}}); err != nil {
		return err
	}
	for {
		data, ended, err := body.next(ctx, l)
		for piece := range slices.Chunk(data, messageBytes) {
			if err := stream.Send(&execwirev1.FetchResponse{Message: &execwirev1.FetchResponse_Data{Data: piece}}); err != nil {
				return err
			}
		}
		if err != nil || ended {
			return err
		}
	}
}

func (s *httpService) params(request *execwirev1.FetchRequest, l *link) (*httpParams, error) {
	params := &httpParams{Method: request.GetMethod(), URL: request.GetUrl(), Headers: []httpHeader{}, Body: request.GetBody(),
		RequestID: rand.Text(), StreamResponse: true}
	for _, h := range request.GetHeaders() {
		if len(h.GetRawValue()) > 0 {
			return nil, unsupported("headers.raw_value", "takes text alone")
		}
		params.Headers = append(params.Headers, httpHeader{h.GetName(), h.GetValue()})
	}
	if request.GetTimeout() != nil {
		ms := request.GetTimeout().AsDuration().Milliseconds()
		params.TimeoutMs = &ms
	}
	if request.GetRedirectPolicy() == execwirev1.RedirectPolicy_REDIRECT_POLICY_STOP {
		if !l.peer.uris {
			return nil, unsupported("redirect_policy", "follows redirects")
		}
		params.RedirectPolicy = "stop"
	}
	return params, nil
}

// bodyQueue is the body of a response that was not taken yet.
type bodyQueue struct {
	id      string
	changed chan struct{} // has room for one

	mu     sync.Mutex
	data   []byte // guarded by mu
	ended  bool   // guarded by mu
	failed error  // guarded by mu
}

func newBodyQueue(id string) *bodyQueue {
	return &bodyQueue{id: id, changed: make(chan struct{}, 1)}
}

// take takes a notification. It is called by the receiving goroutine.
func (q *bodyQueue) take(params []byte) error {
	var delta bodyDelta
	if err := jsonrpc.DecodeParams(params, &delta); err != nil {
		return protocolErrorf("a part of a body cannot be understood: %v", err)
	}
	if delta.RequestID != q.id {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.failed != nil || q.ended:
		return nil
	case len(q.data)+len(delta.Delta) > maxBodyQueue:
		q.failed = failure(execwirev1.ErrorReason_ERROR_REASON_HTTP_BODY_FAILED,
			"more than %d bytes of the body wait to be read, and this server does not wait: read faster", maxBodyQueue)
	case delta.Error != nil:
		q.failed = failure(execwirev1.ErrorReason_ERROR_REASON_HTTP_BODY_FAILED, "failed to read the body: %s", *delta.Error)
	default:
		q.data = append(q.data, delta.Delta...)
		q.ended = delta.Done
	}
	select {
	case q.changed <- struct{}{}:
	default:
	}
	return nil
}

// next waits for more of the body, or its end. What came before a failure comes first.
func (q *bodyQueue) next(ctx context.Context, l *link) (data []byte, ended bool, err error) {
	for {
		q.mu.Lock()
		data, ended, err = q.data, q.ended, q.failed
		q.data = nil
		q.mu.Unlock()
		if len(data) > 0 || ended || err != nil {
			return data, ended, err
		}
		select {
		case <-q.changed:
		case <-ctx.Done():
			return nil, false, contextStatus(ctx)
		case <-l.lost():
			return nil, false, l.status()
		}
	}
}
