package execserver

import (
	"context"
	"errors"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/backoff"
)

// defaultGrace is how long a process is kept whose owner was lost, unless it said.
const defaultGrace = 30 * time.Second

// own makes a feed the owner of its process. Who owned it before is told.
func (p *process) own(f *feed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before := p.owner; before != nil {
		if before.over == nil {
			before.over = failure(execwirev1.ErrorReason_ERROR_REASON_PROCESS_TAKEN_OVER,
				"another stream took over the ownership of process %s", p.id)
		}
		notify(before.wake)
	}
	p.owner = f
	if p.waiting != nil {
		close(p.waiting)
		p.waiting = nil
	}
}

// disown gives the process up, if the feed owns it: it goes on without an owner.
func (p *process) disown(f *feed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.owner == f {
		p.owner = nil
		p.acknowledgeAll()
	}
}

// abandon is for a feed that is lost: somebody has to own the process again within
// the grace, or it is terminated.
func (p *process) abandon(f *feed, asked *durationpb.Duration) {
	grace := defaultGrace
	if asked != nil {
		grace = max(asked.AsDuration(), 0)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.owner != f {
		return
	}
	p.owner = nil
	if p.closed {
		p.acknowledgeAll()
		return
	}
	returned := make(chan struct{})
	p.waiting = returned
	p.conn.tasks.Go(func() { p.terminateAfter(grace, returned) })
}

// terminateAfter terminates the process unless somebody returns to it.
func (p *process) terminateAfter(grace time.Duration, returned <-chan struct{}) {
	ctx, cancel := context.WithCancelCause(p.conn.ctx)
	defer cancel(nil)
	stop := make(chan struct{})
	defer close(stop)
	p.conn.tasks.Go(func() {
		select {
		case <-returned:
			cancel(errReturned)
		case <-stop:
		}
	})
	if !backoff.Pause(ctx, grace) {
		return
	}
	p.mu.Lock()
	if p.waiting != returned {
		p.mu.Unlock()
		return
	}
	p.waiting = nil
	p.acknowledgeAll()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return
	}
	var wait backoff.Backoff
	for isUnanswered(p.terminate(ctx)) && wait.Wait(ctx, 0) {
	}
}

var errReturned = errors.New("the process has an owner again")

// terminate kills the process.
func (p *process) terminate(ctx context.Context) error {
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	return p.conn.control(ctx, "process/terminate", map[string]string{"processId": p.id}, nil)
}

// everything is beyond every seq: it acknowledges all that the server has told.
const everything = uint64(math.MaxInt64)

// acknowledging is how far a process is acknowledged.
type acknowledging struct {
	all    bool   // everything that the server has told until now
	wanted uint64 // up to where
	told   uint64 // up to where the server was told, over link
	link   *link
	asking bool // it is being told
}

// acknowledge has the server told that what there is up to a seq need not be kept,
// if it wants to be told. mu is held.
func (p *process) acknowledge(seq uint64) {
	p.acks.wanted = max(p.acks.wanted, seq)
	p.tellTaken()
}

// acknowledgeAll is acknowledge for all that the server has told until now, also
// what did not come here. mu is held.
func (p *process) acknowledgeAll() {
	p.acks.all = true
	p.tellTaken()
}

// acknowledgeParams are the parameters of process/acknowledge.
type acknowledgeParams struct {
	ProcessID string `json:"processId"`
	Seq       uint64 `json:"seq"`
}

// tellTaken tells the server what it was not told yet. One request at a time tells
// what came to be taken while the one before it was under way. mu is held.
func (p *process) tellTaken() {
	l := p.conn.acknowledged()
	if l == nil {
		return
	}
	if p.acks.link != l {
		p.acks.link, p.acks.told, p.acks.asking = l, 0, false
	}
	seq := p.acks.wanted
	if p.acks.asking || seq <= p.acks.told && !p.acks.all {
		return
	}
	if p.acks.all {
		p.acks.all, seq = false, everything
	}
	encode := func(dst []byte, id jsonrpc.ID) []byte {
		return jsonrpc.AppendRequest(dst, id, "process/acknowledge", acknowledgeParams{p.id, seq})
	}
	p.acks.asking = l.post(encode, func([]byte, error) { p.hasTold(l, seq) }) == nil
}

// hasTold is for an acknowledgement that was answered. If it failed, the process is
// gone, or the link is, over whose successor it is told again.
func (p *process) hasTold(l *link, seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.acks.link != l {
		return
	}
	p.acks.asking = false
	if seq != everything {
		p.acks.told = seq
	}
	p.tellTaken()
}

// acknowledged is the link over which acknowledgements are to be sent, nil for none.
func (c *Conn) acknowledged() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == nil || !c.link.peer.acknowledges {
		return nil
	}
	return c.link
}

// acknowledgeAgain tells over a new link what was taken.
func (c *Conn) acknowledgeAgain() {
	for _, p := range c.processes.all() {
		p.mu.Lock()
		if p.owner == nil && p.waiting == nil {
			p.acks.all = true
		}
		p.tellTaken()
		p.mu.Unlock()
	}
}
