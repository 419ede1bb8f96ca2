// Package inproc is a gRPC connection that does not leave the process.
//
// A [Channel] is both ends at once: services are registered on it as on a
// *grpc.Server, and generated clients call through it as through a
// *grpc.ClientConn. Whoever holds either end cannot tell it from a wire:
// statuses, metadata, end of stream, deadlines, cancellation, flow control and
// interceptors behave as in grpc-go, and the tests of this package run every
// scenario over both.
//
// What is different is what the caller is not meant to see. Messages are not
// encoded: the receiver gets a shallow copy, whose byte slices, lists, maps and
// sub-messages are the sender's own. A message is therefore immutable from the
// moment it is sent, on both sides and at every depth; a handler may use its
// memory again where the caller promised to hand it back, or use what the caller
// lent (see the methods ReuseAfter and Lent of the stream that handlers find in
// their context). Since nothing is
// encoded, limits on encoded size, compressors and codecs have no effect, text
// that is not UTF-8 passes where an encoder would refuse it, and the metadata
// the transport adds of itself (:authority, content-type, user-agent,
// grpc-status-details-bin) is absent.
package inproc

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// Channel connects clients to the services registered on it. Make one with
// [New] and end it with [Channel.Close]. All methods may be called
// concurrently; a service may be registered while calls are running.
type Channel struct {
	unary      grpc.UnaryServerInterceptor
	stream     grpc.StreamServerInterceptor
	depth      int
	serverSees *peer.Peer
	clientSees *peer.Peer
	idle       chan struct{} // closed when the channel refuses calls and none is left
	workers    workers       // of handlers

	mu       sync.Mutex // guards what follows
	services map[string]*service
	running  map[*clientStream]struct{} // calls whose handler has not returned
	refusing bool
}

var (
	_ grpc.ServiceRegistrar    = (*Channel)(nil)
	_ grpc.ClientConnInterface = (*Channel)(nil)
)

// New returns an open channel without services.
func New(opts ...Option) *Channel {
	c := config{depth: defaultQueueDepth, authInfo: AuthInfo{}}
	for _, o := range opts {
		o(&c)
	}
	return &Channel{
		unary:      chainUnary(c.unary),
		stream:     chainStream(c.stream),
		depth:      c.depth,
		serverSees: &peer.Peer{Addr: Addr{}, LocalAddr: Addr{}, AuthInfo: c.authInfo},
		clientSees: &peer.Peer{Addr: Addr{}, LocalAddr: Addr{}, AuthInfo: AuthInfo{}},
		idle:       make(chan struct{}),
		services:   make(map[string]*service),
		running:    make(map[*clientStream]struct{}),
	}
}

// RegisterService makes impl answer the methods of desc. Like grpc-go it takes
// a wrong implementation or a second registration for a mistake in the program:
// it panics.
func (ch *Channel) RegisterService(desc *grpc.ServiceDesc, impl any) {
	if impl != nil {
		want := reflect.TypeOf(desc.HandlerType).Elem()
		if got := reflect.TypeOf(impl); !got.Implements(want) {
			panic(fmt.Sprintf("inproc: %v registered for %s does not implement %v", got, desc.ServiceName, want))
		}
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if _, ok := ch.services[desc.ServiceName]; ok {
		panic(fmt.Sprintf("inproc: service %s is already registered", desc.ServiceName))
	}
	ch.services[desc.ServiceName] = newService(desc, impl, ch.unary)
}

// GetServiceInfo describes the registered services, as server reflection wants
// them.
func (ch *Channel) GetServiceInfo() map[string]grpc.ServiceInfo {
	ch.mu.Lock()
	services := maps.Clone(ch.services)
	ch.mu.Unlock()
	infos := make(map[string]grpc.ServiceInfo, len(services))
	for name, s := range services {
		infos[name] = s.info()
	}
	return infos
}

// lookup finds the method a caller named as "/service/method". For a name that
// nobody has registered it returns a method that says so, and that looks unary:
// no interceptor sees it, as in grpc-go.
func (ch *Channel) lookup(fullMethod string) *method {
	serviceName, name, ok := cutMethod(fullMethod)
	if !ok {
		return unimplemented("malformed method name: %q", fullMethod)
	}
	ch.mu.Lock()
	s, ok := ch.services[serviceName]
	ch.mu.Unlock()
	if !ok {
		return unimplemented("unknown service %v", serviceName)
	}
	if m, ok := s.methods[name]; ok {
		return m
	}
	return unimplemented("unknown method %v for service %v", name, serviceName)
}

func cutMethod(fullMethod string) (serviceName, name string, ok bool) {
	path, ok := strings.CutPrefix(fullMethod, "/")
	if !ok {
		return "", "", false
	}
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", "", false
	}
	return path[:i], path[i+1:], true
}

// begin admits a call, or says that the channel refuses calls.
func (ch *Channel) begin(cs *clientStream) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.refusing {
		return false
	}
	ch.running[cs] = struct{}{}
	return true
}

// forget drops a call whose handler has returned.
func (ch *Channel) forget(cs *clientStream) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	delete(ch.running, cs)
	if ch.refusing && len(ch.running) == 0 {
		close(ch.idle)
	}
}

// refuse lets no further call begin and returns those whose handlers run.
func (ch *Channel) refuse() []*clientStream {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if !ch.refusing {
		ch.refusing = true
		if len(ch.running) == 0 {
			close(ch.idle)
		}
	}
	left := make([]*clientStream, 0, len(ch.running))
	for cs := range ch.running {
		left = append(left, cs)
	}
	return left
}

// Shutdown refuses further calls with Unavailable and waits until every running
// handler has returned by itself. It returns nil then, or the cause of ctx if
// that ends first; the handlers then run on, until [Channel.Close]. A handler
// must not call it.
func (ch *Channel) Shutdown(ctx context.Context) error {
	ch.refuse()
	select {
	case <-ch.idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("failed to wait for the running calls: %w", context.Cause(ctx))
	}
}

// Close refuses further calls, ends the running ones with Unavailable, cancels
// their handlers with the cause [ErrClosed], and returns when all handlers have
// returned: a handler that ignores its context is waited for. Closing again
// waits again. A handler must not call it.
func (ch *Channel) Close() {
	for _, cs := range ch.refuse() {
		cs.abort()
	}
	<-ch.idle
	ch.workers.close()
}
