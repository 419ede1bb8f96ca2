// Package tracing records spans of OpenTelemetry and sends them to a collector by OTLP
// over gRPC.
//
// It is a small part of what the OpenTelemetry SDK does, which would add more than a
// megabyte to a program; see docs/decisions/0010-otlp-exporter.md. Nothing in it
// waits for the collector, except [Tracer.Close] for a limited time.
package tracing

import (
	"context"
	"encoding/hex"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/execwire/execwire/internal/tracecontext"
)

// Tracer starts spans and sends those that have ended. A nil Tracer does nothing. All
// methods may be called concurrently.
type Tracer struct {
	ratio    float64 // of traces that begin here
	resource []byte  // encoded
	headers  metadata.MD
	conn     *grpc.ClientConn
	log      *slog.Logger

	queue             chan []byte // encoded spans that have ended
	closing           chan struct{}
	running           context.Context // of exports
	cancel            context.CancelCauseFunc
	worker            sync.WaitGroup
	exported, dropped atomic.Uint64
}

// Exported returns how many spans the collector has accepted.
func (t *Tracer) Exported() uint64 {
	if t == nil {
		return 0
	}
	return t.exported.Load()
}

// Dropped returns how many spans were lost, because the collector did not take them in
// time or refused them.
func (t *Tracer) Dropped() uint64 {
	if t == nil {
		return 0
	}
	return t.dropped.Load()
}

// Kind is the kind of a span, by its number in OTLP.
type Kind uint8

// The kinds.
const (
	Internal Kind = 1
	Server   Kind = 2
	Client   Kind = 3
)

// Span is an operation in a trace. All methods of a nil Span do nothing. A span is used by
// one goroutine at a time, except for Context and Child.
type Span struct {
	tracer     *Tracer
	trace      [16]byte
	id, parent [8]byte
	state      string
	name       string
	kind       Kind
	began      time.Time
	attributes []byte // encoded
	events     []byte // encoded
	refused    int    // the status of HTTP, if it is an error
}

// Start starts a span. It belongs to the trace of the parent if that is sampled. Without
// a parent it begins a trace, for the configured part of them. Otherwise the span is nil,
// which costs nothing.
func (t *Tracer) Start(parent tracecontext.Context, name string, kind Kind) *Span {
	if t == nil || !parent.IsZero() && !parent.Sampled() || parent.IsZero() && rand.Float64() >= t.ratio {
		return nil
	}
	s := &Span{tracer: t, name: name, kind: kind, began: time.Now(), state: parent.State()}
	if parent.IsZero() {
		randomID(s.trace[:])
	} else {
		_, _ = hex.Decode(s.trace[:], []byte(parent.TraceID()))
		_, _ = hex.Decode(s.parent[:], []byte(parent.SpanID()))
	}
	randomID(s.id[:])
	return s
}

// Child starts a span below s at a time, which may be in the past. The children of a nil
// span are nil.
func (s *Span) Child(name string, kind Kind, began time.Time) *Span {
	if s == nil {
		return nil
	}
	child := &Span{tracer: s.tracer, trace: s.trace, parent: s.id, state: s.state, name: name, kind: kind, began: began}
	randomID(child.id[:])
	return child
}

// randomID fills an id, which must not be zero. It need not be unpredictable.
func randomID(id []byte) {
	id[0] = byte(1 + rand.IntN(255))
	for i := range id[1:] {
		id[1+i] = byte(rand.Uint32())
	}
}

// Context returns the context for calls that belong to the span.
func (s *Span) Context() tracecontext.Context {
	if s == nil {
		return tracecontext.Context{}
	}
	return tracecontext.Parse("00-"+hex.EncodeToString(s.trace[:])+"-"+hex.EncodeToString(s.id[:])+"-01", s.state)
}

// SetString sets an attribute. Arguments, environments and contents do not belong there.
func (s *Span) SetString(key, value string) {
	if s != nil {
		s.attributes = appendAttribute(s.attributes, spanAttributes, key, stringValue(value))
	}
}

// SetInt sets an attribute.
func (s *Span) SetInt(key string, value int64) {
	if s != nil {
		s.attributes = appendAttribute(s.attributes, spanAttributes, key, intValue(value))
	}
}

// Event adds something that happened at a time.
func (s *Span) Event(name string, at time.Time) {
	if s != nil {
		s.events = appendEvent(s.events, name, at)
	}
}

// End ends the span now. It is called once, last. failed marks the span as an error.
func (s *Span) End(failed bool) {
	if s != nil {
		s.EndAt(time.Now(), failed)
	}
}

// EndAt ends the span as End does, at a time.
func (s *Span) EndAt(at time.Time, failed bool) {
	if s == nil || s.refused == http.StatusUnauthorized {
		return
	}
	select {
	case s.tracer.queue <- s.encode(at, failed):
	default:
		s.tracer.dropped.Add(1)
	}
}

type contextKey struct{}

// NewContext returns a context with a span.
func NewContext(ctx context.Context, s *Span) context.Context {
	return context.WithValue(ctx, contextKey{}, s)
}

// FromContext returns the span of a context, or nil.
func FromContext(ctx context.Context) *Span {
	s, _ := ctx.Value(contextKey{}).(*Span)
	return s
}
