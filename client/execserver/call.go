package execserver

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc/metadata"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

// call makes a request and decodes its result into result, a pointer to a struct
// for jsonrpc.DecodeParams; nil drops it. Parameters are written by encoding/json.
// It waits for a connection, for a place among the requests under way, and for the
// answer, and returns at the latest when ctx is done: the server may carry the
// request out nevertheless. Errors are gRPC statuses.
func (c *Conn) call(ctx context.Context, method string, params, result any) error {
	return c.callIn(ctx, c.places, method, params, result)
}

// control is call for requests that end or acknowledge something, which have
// places of their own.
func (c *Conn) control(ctx context.Context, method string, params, result any) error {
	return c.callIn(ctx, c.spare, method, params, result)
}

func (c *Conn) callIn(ctx context.Context, places chan struct{}, method string, params, result any) error {
	l, err := c.current(ctx)
	if err != nil {
		return err
	}
	return c.callOn(ctx, l, places, method, params, result)
}

// callOn is call over one link.
func (c *Conn) callOn(ctx context.Context, l *link, places chan struct{}, method string, params, result any) error {
	select {
	case places <- struct{}{}:
	case <-ctx.Done():
		return contextStatus(ctx)
	case <-l.lost():
		return l.status()
	}
	raw, err := l.call(ctx, method, params, func() { <-places })
	if err != nil {
		return c.statusOf(method, err)
	}
	if result == nil {
		return nil
	}
	if err := jsonrpc.DecodeParams(raw, result); err != nil {
		return c.broken(l, protocolErrorf("the result of %s cannot be understood: %v", method, err))
	}
	return nil
}

// w3cTrace is where a caller is in its trace, as messages have it.
type w3cTrace struct {
	Parent string `json:"traceparent"`
	State  string `json:"tracestate,omitempty"`
}

// appendTrace adds to a request where its caller is in a trace, if it says.
func appendTrace(ctx context.Context, request []byte) []byte {
	md, _ := metadata.FromIncomingContext(ctx)
	parent := md.Get("traceparent")
	if len(parent) != 1 {
		return request
	}
	trace := w3cTrace{Parent: parent[0]}
	if state := md.Get("tracestate"); len(state) > 0 {
		trace.State = state[0]
	}
	text, err := json.Marshal(trace)
	if err != nil {
		return request
	}
	request = append(request[:len(request)-1], `,"trace":`...)
	return append(append(request, text...), '}')
}
