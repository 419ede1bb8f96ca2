// Package inproc is a gRPC connection within the process.
//
// A [Channel] is both ends: services are registered on it as on a *grpc.Server,
// and generated clients call through it as through a *grpc.ClientConn. Statuses,
// metadata in both directions, end of stream, deadlines, cancellation, flow control and
// interceptors behave as in grpc-go; the tests of this package run every scenario over
// both. Of the call options of grpc-go, grpc.Header and grpc.Trailer have an effect, for
// unary calls, and metadata is not validated.
//
// Messages are not encoded: the receiver gets a shallow copy, whose byte slices,
// lists, maps and sub-messages are the sender's own. A message is therefore
// immutable once it is sent, on both sides and at every depth. A handler may
// reuse memory that the caller hands back ([HandBack], [HandBackAcknowledged]), use memory that the caller
// lends ([Lend]), and pass on an open file ([TakeFile]). Since nothing is encoded, limits
// on encoded size have no effect, text that is not UTF-8 is not rejected, and the metadata
// that the transport adds (:authority, content-type, user-agent) is absent.
package inproc

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
)

// Channel connects clients to the services registered on it. It is created by
// [New] and must be closed. All methods may be called concurrently; services may
// be registered while calls are running.
type Channel struct {
	unary    grpc.UnaryServerInterceptor
	stream   grpc.StreamServerInterceptor
	idle     chan struct{} // closed when the channel is closing and no call is left
	handlers sync.WaitGroup

	mu       sync.Mutex // guards what follows
	services map[string]*service
	running  map[*clientStream]struct{} // calls whose handler has not returned
	closing  bool
	quiet    chan struct{} // closed when no call is running; nil: nobody waits for that
}

var (
	_ grpc.ServiceRegistrar    = (*Channel)(nil)
	_ grpc.ClientConnInterface = (*Channel)(nil)
)

// New returns an open channel without services.
func New(opts ...Option) *Channel {
	ch := &Channel{
		idle:     make(chan struct{}),
		services: make(map[string]*service),
		running:  make(map[*clientStream]struct{}),
	}
	for _, o := range opts {
		o(ch)
	}
	return ch
}

// RegisterService registers impl for the methods of desc. Like grpc-go it panics
// for a wrong implementation or a second registration.
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

// lookup returns the method "/service/method". For an unknown name it returns a
// method that fails with Unimplemented, and that is unary, so that no interceptor
// is called, as in grpc-go.
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

// add adds a call; false if the channel is closing.
func (ch *Channel) add(cs *clientStream) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closing {
		return false
	}
	ch.running[cs] = struct{}{}
	return true
}

// remove removes a call whose handler has returned.
func (ch *Channel) remove(cs *clientStream) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	delete(ch.running, cs)
	if len(ch.running) > 0 {
		return
	}
	if ch.closing {
		close(ch.idle)
	}
	if ch.quiet != nil {
		close(ch.quiet)
		ch.quiet = nil
	}
}

// WaitQuiet waits until no handler is running, and returns nil then, or the cause of ctx
// if that ends first. It rejects nothing: the caller knows that no calls are made. A
// handler must not call it.
func (ch *Channel) WaitQuiet(ctx context.Context) error {
	ch.mu.Lock()
	if len(ch.running) == 0 {
		ch.mu.Unlock()
		return nil
	}
	if ch.quiet == nil {
		ch.quiet = make(chan struct{})
	}
	quiet := ch.quiet
	ch.mu.Unlock()
	select {
	case <-quiet:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("failed to wait for the running calls: %w", context.Cause(ctx))
	}
}

// startClosing rejects further calls and returns the running ones.
func (ch *Channel) startClosing() []*clientStream {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if !ch.closing {
		ch.closing = true
		if len(ch.running) == 0 {
			close(ch.idle)
		}
	}
	return slices.Collect(maps.Keys(ch.running))
}

// Shutdown rejects further calls with Unavailable and waits until every running
// handler has returned. It returns nil then, or the cause of ctx if that ends
// first; the handlers then continue until [Channel.Close]. A handler must not
// call it.
func (ch *Channel) Shutdown(ctx context.Context) error {
	ch.startClosing()
	select {
	case <-ch.idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("failed to wait for the running calls: %w", context.Cause(ctx))
	}
}

// Close rejects further calls, ends the running ones with Unavailable, cancels
// their handlers with the cause [ErrClosed], and returns when all handlers have
// returned, including those that ignore their context. Further calls wait, too. A
// handler must not call it.
func (ch *Channel) Close() {
	for _, cs := range ch.startClosing() {
		cs.abort()
	}
	<-ch.idle
	ch.handlers.Wait()
}
