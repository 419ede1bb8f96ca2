package gateway

import (
	"context"
	"slices"
	"sync"

	"github.com/execwire/execwire/gateway/jsonrpc"
	"github.com/execwire/execwire/internal/wsconn"
)

const (
	// maxBulk is how many large answers of one kind are prepared at once for one
	// connection. They are said one after the other anyway, and wait in memory
	// for a client that does not read.
	maxBulk = 8
	// bulkBytes is what each of them is taken for, which few are larger than.
	bulkBytes = 4 << 20
)

// bulk bounds the answers of a connection that can be large. One of them may
// always be prepared; more as long as those of all connections leave room for
// them. It is to be ended. The zero value is ready, and bounds those of one
// connection.
type bulk struct {
	share *wsconn.Share // of all connections, what all but one take; nil is no bound

	mu      sync.Mutex
	entered int             // guarded by mu
	waiting []chan struct{} // guarded by mu; closed when there is a slot, in their order
}

// enter waits until an answer may be prepared. leave is to be called when it was
// said or there is none; calls but the first do nothing.
func (b *bulk) enter(ctx context.Context) (leave func(), failed *jsonrpc.Error) {
	leave = sync.OnceFunc(b.leave)
	turn := b.queue()
	select {
	case <-turn:
		return leave, nil
	case <-ctx.Done():
		if b.withdraw(turn) {
			leave() // it was given a slot meanwhile
		}
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternal, "the connection is being closed")
	}
}

// queue returns what is closed when there is a slot.
func (b *bulk) queue() chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	turn := make(chan struct{})
	b.waiting = append(b.waiting, turn)
	b.admitLocked()
	return turn
}

// withdraw gives up waiting, and reports whether there was a slot already.
func (b *bulk) withdraw(turn chan struct{}) (entered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := slices.Index(b.waiting, turn); at >= 0 {
		b.waiting = slices.Delete(b.waiting, at, at+1)
		return false
	}
	return true
}

func (b *bulk) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entered--
	b.hold(b.entered)
	b.admitLocked()
}

// admitLocked lets in those who wait, as many as may. Whoever then still waits is
// looked at when another of the connection leaves, of which there is one.
func (b *bulk) admitLocked() {
	for len(b.waiting) > 0 && b.entered < maxBulk && b.hold(b.entered+1) {
		b.entered++
		close(b.waiting[0])
		b.waiting = b.waiting[1:]
	}
}

// hold has the share be that of so many answers, and reports whether it may.
func (b *bulk) hold(answers int) bool {
	if b.share == nil {
		return true
	}
	return b.share.Hold(int64(max(answers-1, 0))*bulkBytes) || answers <= 1
}

// end gives the share back. Nothing is prepared any more.
func (b *bulk) end() {
	if b.share != nil {
		b.share.End()
	}
}
