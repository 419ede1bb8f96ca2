package tracecontext

import (
	"context"
	"strings"

	"google.golang.org/grpc/metadata"
)

// FromIncoming returns the trace context of the caller of a call. One with two parents
// has none.
func FromIncoming(ctx context.Context) Context {
	return fromValues(metadata.ValueFromIncomingContext(ctx, ParentKey), metadata.ValueFromIncomingContext(ctx, StateKey))
}

// FromOutgoing returns the trace context that calls with ctx carry.
func FromOutgoing(ctx context.Context) Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	return fromValues(md.Get(ParentKey), md.Get(StateKey))
}

func fromValues(parents, states []string) Context {
	if len(parents) != 1 {
		return Context{}
	}
	return Parse(parents[0], strings.Join(states, ","))
}

// NewOutgoing returns a context whose calls carry c. With the zero value it returns ctx.
func NewOutgoing(ctx context.Context, c Context) context.Context {
	if c.IsZero() {
		return ctx
	}
	pairs := []string{ParentKey, c.Parent()}
	if c.State() != "" {
		pairs = append(pairs, StateKey, c.State())
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}
