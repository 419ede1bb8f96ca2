package call

import (
	"context"
	"sync"

	"github.com/execwire/execwire/internal/jsonrpc"
)

const (
	// MaxLarge bounds the large results of one kind that one connection prepares at
	// once. They are sent one after the other, and stay in memory while the client
	// does not read.
	MaxLarge = 8
	// largeBytes is the size that each counts for; few are larger.
	largeBytes = 4 << 20
)

// Shared bounds the large results of all connections, beside one of each kind that
// every connection may always have.
type Shared chan struct{}

// NewShared returns a bound in bytes.
func NewShared(bytes int) Shared { return make(Shared, bytes/largeBytes) }

// Limiter bounds the large results of one kind of one connection.
type Limiter struct {
	all    chan struct{} // has an element for each result
	own    chan struct{} // has an element for the result that does not count in shared
	shared Shared        // has an element for each other result
}

// NewLimiter returns the limiter of a connection.
func NewLimiter(shared Shared) *Limiter {
	return &Limiter{all: make(chan struct{}, MaxLarge), own: make(chan struct{}, 1), shared: shared}
}

// Acquire waits until a large result may be prepared. The caller must call release after
// sending it or on failure; only the first call has an effect. It is released at the end
// of ctx, too.
func (l *Limiter) Acquire(ctx context.Context) (release func(), failed *jsonrpc.Error) {
	select {
	case l.all <- struct{}{}:
	case <-ctx.Done():
		return nil, Closing()
	}
	from := l.own
	select {
	case from <- struct{}{}:
	default:
		select {
		case l.own <- struct{}{}:
		case l.shared <- struct{}{}:
			from = l.shared
		case <-ctx.Done():
			<-l.all
			return nil, Closing()
		}
	}
	free := sync.OnceFunc(func() {
		<-from
		<-l.all
	})
	stop := context.AfterFunc(ctx, free)
	return func() { stop(); free() }, nil
}

// Prepare acquires, and calls prepare for a result that calls release when it was sent. On
// failure it releases.
func (l *Limiter) Prepare(ctx context.Context, prepare func(release func()) (any, *jsonrpc.Error)) (any, *jsonrpc.Error) {
	release, failed := l.Acquire(ctx)
	if failed != nil {
		return nil, failed
	}
	result, failed := prepare(release)
	if failed != nil {
		release()
		return nil, failed
	}
	return result, nil
}

// Closing is the error of a request that its connection does not wait for.
func Closing() *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeInternal, "the connection is being closed")
}
