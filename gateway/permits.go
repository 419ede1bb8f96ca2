package gateway

import (
	"context"
	"runtime"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/execwire/execwire/gateway/rpcerror"
	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/wsconn"
)

// permits bounds the requests of one connection that are in flight.
type permits struct {
	requests, control, incoming int           // limits
	share                       *wsconn.Share // accounts for inBytes across connections; nil is no bound

	mu         sync.Mutex
	inRequests int // guarded by mu
	inControl  int // guarded by mu; not in inRequests
	inBytes    int // guarded by mu; bytes of all messages in flight
}

// smallRequest is the size in bytes up to which a control request with a permit of its
// own does not wait for memory.
const smallRequest = 16 << 10

func (p *permits) configure(config Config, share *wsconn.Share) {
	p.requests, p.control, p.incoming = config.Requests, config.ControlRequests, config.Incoming
	p.share = share
}

// acquire takes a permit or returns the limit that is reached. Control requests have
// permits of their own when the others are in use, because some of them block; closing
// a file, for example, waits for earlier calls on it. It never blocks. The permit is
// released just before the answer is sent, so that the client can send the next request
// as soon as it has the answer; only the first call of release has an effect.
func (p *permits) acquire(control bool, bytes int) (release func(), failed *jsonrpc.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	small, full := control && bytes <= smallRequest, p.inRequests >= p.requests
	switch {
	case full && control && p.inControl >= p.control:
		return nil, rpcerror.LimitReached("control_requests_per_connection", p.control, "terminate, signal and query requests are in flight")
	case full && !control:
		return nil, rpcerror.LimitReached("requests_per_connection", p.requests, "requests are in flight")
	case p.inBytes > 0 && p.inBytes+bytes > p.incoming && !small:
		return nil, rpcerror.LimitReached("incoming_bytes_per_connection", p.incoming, "bytes of requests are in flight")
	case !p.share.Resize(int64(p.inBytes+bytes)) && !small:
		return nil, rpcerror.BudgetReached()
	}
	if full {
		p.inControl++
	} else {
		p.inRequests++
	}
	p.inBytes += bytes
	return sync.OnceFunc(func() { p.release(full, bytes) }), nil
}

func (p *permits) release(control bool, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if control {
		p.inControl--
	} else {
		p.inRequests--
	}
	p.inBytes -= bytes
	p.share.Resize(int64(p.inBytes)) // cannot fail: it shrinks
}

// largeMessageBytes is the size from which decoding can take milliseconds, and many
// times the message's memory.
const largeMessageBytes = wsconn.OwnBytes

// decodeLimiter bounds how many large messages are decoded at once, across connections.
// Decoding more in parallel is not faster, needs more memory, and takes the processors
// from small requests.
type decodeLimiter struct{ slots *semaphore.Weighted }

// decodeSlots leaves half of the processors to other work.
func decodeSlots() int { return max(1, runtime.GOMAXPROCS(0)/2) }

func newDecodeLimiter() decodeLimiter {
	return decodeLimiter{slots: semaphore.NewWeighted(int64(decodeSlots()))}
}

// run calls decode, immediately for a small message, else when a slot is free. It
// returns false if ctx ends first.
func (l decodeLimiter) run(ctx context.Context, bytes int, decode func()) bool {
	if bytes >= largeMessageBytes {
		if l.slots.Acquire(ctx, 1) != nil {
			return false
		}
		defer l.slots.Release(1)
	}
	decode()
	return true
}
