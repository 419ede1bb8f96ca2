// Package httpcalls has http/request of the JSON-RPC protocol, as a call of the generated
// gRPC client.
package httpcalls

import (
	"context"
	"sync"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/wsconn"
)

// Config has the limits of one connection.
type Config struct {
	// Disabled refuses all requests.
	Disabled bool
	// Requests is the largest number in flight, streamed responses included.
	Requests int
	// Buffered is the largest size in bytes of response bodies that are answered whole.
	Buffered int
	// Share accounts for the bodies across connections.
	Share *wsconn.Share
}

// Service serves the HTTP requests of one connection.
type Service struct {
	client       execwirev1.HttpServiceClient
	connection   call.Connection
	config       Config
	messageBytes uint64 // the server's limit of a request; set by Open

	mu        sync.Mutex
	inFlight  int                 // guarded by mu
	buffered  int                 // guarded by mu; bytes of bodies in memory
	streaming map[string]struct{} // guarded by mu; request ids
}

// New returns the service of a connection.
func New(client execwirev1.HttpServiceClient, connection call.Connection, config Config) *Service {
	return &Service{client: client, connection: connection, config: config, streaming: make(map[string]struct{})}
}

// Open sets the server's limit of a message. It precedes the first Enqueue.
func (s *Service) Open(messageBytes uint64) { s.messageBytes = messageBytes }

// Close returns the share, at the end of the connection.
func (s *Service) Close() { s.config.Share.End() }

// slot is the reservation of one request until the end of its response.
type slot struct {
	service   *Service
	cancel    context.CancelCauseFunc // of the call; nil before it
	streaming *string                 // request id
	buffered  int                     // bytes of the body
	released  sync.Once
}

// Enqueue reserves a slot for the request, or records why there is none. Calls are in
// the order in which requests arrive.
func (s *Service) Enqueue(r *Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, active := s.streaming[r.RequestID]
	switch {
	case s.config.Disabled:
		r.full = disabled()
	case r.StreamResponse && active:
		r.full = param.NewError(jsonrpc.CodeInvalidParams, "requestId",
			"http/request streamResponse requestId `"+param.Shorten(r.RequestID)+"` is already active")
	case s.inFlight >= s.config.Requests:
		r.full = rpcerror.LimitReached("http_requests_per_connection", s.config.Requests, "requests over HTTP are under way")
	}
	if r.full != nil {
		return
	}
	s.inFlight++
	r.slot = &slot{service: s}
	if r.StreamResponse {
		id := r.RequestID // a copy: r has a body
		s.streaming[id] = struct{}{}
		r.slot.streaming = &id
	}
}

// reserve reserves memory for a part of the body, or returns the limit that is reached.
func (t *slot) reserve(bytes int) *jsonrpc.Error {
	s := t.service
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.buffered+bytes > s.config.Buffered:
		return responseTooLarge(s.config.Buffered)
	case !s.config.Share.Resize(int64(s.buffered + bytes)):
		return rpcerror.BudgetReached()
	}
	s.buffered += bytes
	t.buffered += bytes
	return nil
}

// release ends the call and frees the slot. Only the first call has an effect.
func (t *slot) release() {
	t.released.Do(func() {
		if t.cancel != nil {
			t.cancel(nil)
		}
		s := t.service
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inFlight--
		s.buffered -= t.buffered
		s.config.Share.Resize(int64(s.buffered))
		if t.streaming != nil {
			delete(s.streaming, *t.streaming)
		}
	})
}
