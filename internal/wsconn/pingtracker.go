package wsconn

import (
	"encoding/binary"
	"sync"
)

// maxPings bounds unanswered pings. Further callers of Prove wait for a pong.
const maxPings = 16

// pingBytes is the size of a ping's payload, its number.
const pingBytes = 8

// pingTracker numbers pings and tracks which are answered. A pong also answers
// all earlier pings, because a peer may answer only the latest one.
type pingTracker struct {
	slots chan struct{} // one slot for each unanswered ping

	mu      sync.Mutex
	last    uint64                   // guarded by mu; number of the latest ping
	pending map[uint64]chan struct{} // guarded by mu; closed by the pong
}

func newPingTracker() *pingTracker { return &pingTracker{slots: make(chan struct{}, maxPings)} }

// send sends the next ping. mu is held meanwhile, so that pings are sent in
// order.
func (p *pingTracker) send(out *outbox) (number uint64, answered <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	number = p.last + 1
	if err := out.sendPing(binary.BigEndian.AppendUint64(nil, number)); err != nil {
		return 0, nil, err
	}
	p.last = number
	done := make(chan struct{})
	if p.pending == nil {
		p.pending = make(map[uint64]chan struct{})
	}
	p.pending[number] = done
	return number, done, nil
}

// remove drops a ping that is no longer waited for.
func (p *pingTracker) remove(number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pending, number)
}

// pong processes a pong. A pong that matches no ping is ignored.
func (p *pingTracker) pong(payload []byte) {
	if len(payload) != pingBytes {
		return
	}
	number := binary.BigEndian.Uint64(payload)
	p.mu.Lock()
	defer p.mu.Unlock()
	if number > p.last {
		return
	}
	for n, done := range p.pending {
		if n <= number {
			close(done)
			delete(p.pending, n)
		}
	}
}
