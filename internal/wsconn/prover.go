package wsconn

import (
	"context"
	"encoding/binary"
	"sync"
)

// maxPings is how many pings may be unanswered. Whoever wants to prove more
// waits for an answer to one of them.
const maxPings = 16

// proofBytes is the payload of a ping: its number.
const proofBytes = 8

// prover numbers pings and knows which of them were answered. The answer to one
// answers all that were sent before it: a peer may leave out all but the last.
type prover struct {
	places chan struct{} // one for each unanswered ping

	mu      sync.Mutex
	last    uint64                   // guarded by mu; number of the latest ping
	waiting map[uint64]chan struct{} // guarded by mu; closed by the answer
}

func newProver() *prover { return &prover{places: make(chan struct{}, maxPings)} }

// Prove blocks until the peer is known to have read all that was sent before,
// by its answer to a ping; somebody must be receiving meanwhile. It may be used
// concurrently with everything. It returns the cause of ctx when that is over,
// and what ended the connection if something did.
func (c *Conn) Prove(ctx context.Context) error {
	p := c.prover
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.over.Done():
		return c.lost("prove")
	}
	number, answered, err := p.send(c.wire.out)
	if err != nil {
		return c.failed("ping", err)
	}
	defer p.forget(number)
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.over.Done():
		return c.lost("prove")
	}
}

// send sends the next ping. The lock is held meanwhile, so that pings leave in
// the order of their numbers.
func (p *prover) send(out *outbox) (number uint64, answered <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	number = p.last + 1
	if err := out.ping(binary.BigEndian.AppendUint64(nil, number)); err != nil {
		return 0, nil, err
	}
	p.last = number
	done := make(chan struct{})
	if p.waiting == nil {
		p.waiting = make(map[uint64]chan struct{})
	}
	p.waiting[number] = done
	return number, done, nil
}

// forget drops a ping that nobody waits for any more.
func (p *prover) forget(number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, number)
}

// pong takes an answer. One to no ping of ours proves nothing.
func (p *prover) pong(payload []byte) {
	if len(payload) != proofBytes {
		return
	}
	number := binary.BigEndian.Uint64(payload)
	p.mu.Lock()
	defer p.mu.Unlock()
	if number > p.last {
		return
	}
	for n, done := range p.waiting {
		if n <= number {
			close(done)
			delete(p.waiting, n)
		}
	}
}
