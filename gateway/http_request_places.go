package gateway

import (
	"context"
	"strconv"
	"sync"

	"github.com/execwire/execwire/gateway/jsonrpc"
	"github.com/execwire/execwire/internal/wsconn"
)

// httpPlaces bound the requests over HTTP of one connection.
type httpPlaces struct {
	off             bool          // there are none
	requests, bytes int           // the limits
	share           *wsconn.Share // what gathered takes of that of all connections

	mu        sync.Mutex
	underWay  int                 // guarded by mu
	gathered  int                 // guarded by mu; bytes of bodies
	streaming map[string]struct{} // guarded by mu; request ids
}

// httpPlace is that of one request, up to the end of its response.
type httpPlace struct {
	of        *httpPlaces
	cancel    context.CancelCauseFunc // of the call; nil before there is one
	streaming *string                 // the request id
	held      int                     // bytes of its body
	left      sync.Once
}

func (p *httpPlaces) limits(config Config, share *wsconn.Share) {
	p.off, p.requests, p.bytes = config.NoHTTP, config.HTTPRequests, config.HTTPBuffered
	p.share = share
	p.streaming = make(map[string]struct{})
}

// enter gives the request its place, or notes why there is none. It is called in
// the order in which requests came.
func (p *httpPlaces) enter(params *httpRequestParams) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, active := p.streaming[params.RequestID]
	switch {
	case p.off:
		params.full = httpDisabled()
	case params.StreamResponse && active:
		params.full = &jsonrpc.Error{
			Code: jsonrpc.CodeInvalidParams, Message: "http/request streamResponse requestId `" + shorten(params.RequestID) + "` is already active",
			Data: jsonrpc.InvalidField{Reason: "INVALID_FIELD", Field: "requestId"},
		}
	case p.underWay >= p.requests:
		params.full = limitReached("http_requests_per_connection", p.requests, "requests over HTTP are under way")
	}
	if params.full != nil {
		return
	}
	p.underWay++
	params.place = &httpPlace{of: p}
	if params.StreamResponse {
		id := params.RequestID // and not the parameters, which have a body
		p.streaming[id] = struct{}{}
		params.place.streaming = &id
	}
}

// hold counts bytes of a body that is gathered, or says which limit was reached.
func (h *httpPlace) hold(bytes int) *jsonrpc.Error {
	p := h.of
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.gathered+bytes > p.bytes:
		return responseTooLarge(p.bytes)
	case !p.share.Hold(int64(p.gathered + bytes)):
		return budgetReached()
	}
	p.gathered += bytes
	h.held += bytes
	return nil
}

// leave ends the call and gives the place back. Calls but the first do nothing.
func (h *httpPlace) leave() {
	h.left.Do(func() {
		if h.cancel != nil {
			h.cancel(nil)
		}
		p := h.of
		p.mu.Lock()
		defer p.mu.Unlock()
		p.underWay--
		p.gathered -= h.held
		p.share.Hold(int64(p.gathered))
		if h.streaming != nil {
			delete(p.streaming, *h.streaming)
		}
	})
}

// end is for the end of the connection, when nothing is gathered any more.
func (p *httpPlaces) end() { p.share.End() }

// responseTooLarge is the refusal of a body for which the connection leaves no
// room.
func responseTooLarge(limit int) *jsonrpc.Error {
	const setting = "http_buffered_bytes_per_connection"
	return &jsonrpc.Error{
		Code: jsonrpc.CodeLimitReached,
		Message: "http/request response bodies that are answered whole take more than " + strconv.Itoa(limit) + " bytes on this connection (" +
			setting + "): ask for it with streamResponse",
		Data: map[string]any{"setting": setting, "limit": limit, retryMember: retryWhenFull.Milliseconds()},
	}
}
