package execserver

import (
	"time"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// listen has what the server says of processes passed on.
func (c *Conn) listen() {
	for method, event := range kinds {
		c.subscribeOn(method, func(l *link, params []byte) error { return c.hear(l, method, params, event) })
	}
}

// hear takes one notification about a process.
func (c *Conn) hear(l *link, method string, raw []byte, makeEvent func(*process, *eventParams) (*execwirev1.ProcessEvent, error)) error {
	var params eventParams
	if err := jsonrpc.DecodeParams(raw, &params); err != nil {
		return protocolErrorf("the notification %s cannot be understood: %v", method, err)
	}
	if params.Seq == 0 {
		return protocolErrorf("the notification %s has the seq 0", method)
	}
	p := c.processes.find(params.ProcessID)
	if p == nil {
		return nil // of a start that failed here, or was forgotten
	}
	event, err := makeEvent(p, &params)
	if err != nil {
		return err
	}
	p.waitForReaders(l)
	return p.hear(l, params.Gap, event)
}

// waitForReaders pauses the link while a reader that paces the process has no room,
// if the server does not see to that itself, and as long as nobody else needs the
// link.
func (p *process) waitForReaders(l *link) {
	if l.peer.acknowledges {
		return
	}
	p.mu.Lock()
	var pacer *feed
	for _, f := range p.feeds {
		if f.paces && f.link == l {
			pacer = f
		}
	}
	p.mu.Unlock()
	for pacer != nil && pacer.isFull() && l.isIdle() && p.conn.pacing.Load() == 1 {
		select {
		case <-pacer.room:
		case <-p.conn.busy:
		case <-l.lost():
			return
		}
	}
}

// hear passes an event on to the readers, and acknowledges it if nobody owns the
// process.
func (p *process) hear(l *link, gap *wireGap, event *execwirev1.ProcessEvent) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.feeds {
		if f.link != l {
			continue
		}
		if gap != nil {
			if err := f.push(gapEvent(gap.FirstAvailableSeq, gap.DroppedBytes, true)); err != nil {
				return err
			}
		}
		if err := f.push(event); err != nil {
			return err
		}
	}
	p.note(event.GetSeq(), event.GetExited().GetExit(), event.GetClosed() != nil)
	if p.owner == nil && p.waiting == nil {
		p.acknowledge(p.last)
	}
	return nil
}

// learn notes what a read said.
func (p *process) learn(r *reading) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(r.last, r.exit, r.closed)
}

// note notes how far a process is. mu is held.
func (p *process) note(seq uint64, exit *execwirev1.ExitRecord, closed bool) {
	p.last = max(p.last, seq)
	p.runs = true
	if p.exit == nil {
		p.exit = exit
	}
	if closed && !p.closed {
		p.closed, p.closedAt = true, time.Now()
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// mark is where a stream of a process was at a seq that a reader was given.
type mark struct {
	seq, end uint64
	stream   execwirev1.OutputStream
}

// maxMarks is how many are kept: from where a reader can go on whose server does
// not tell where output is in its stream.
const maxMarks = 1 << 16

// mark notes that output of a stream ends at an offset with a seq.
func (p *process) mark(seq uint64, stream execwirev1.OutputStream, end uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.marks); n > 0 && p.marks[n-1].seq >= seq {
		return
	}
	if len(p.marks) == maxMarks {
		p.marks = append(p.marks[:0], p.marks[maxMarks/2:]...)
	}
	p.marks = append(p.marks, mark{seq, end, stream})
}

// offsetsAt is where the streams were at a seq, as far as that is known. mu is held.
func (p *process) offsetsAt(seq uint64) (offsets [streamCount]uint64) {
	for _, m := range p.marks {
		if m.seq <= seq {
			offsets[m.stream] = m.end
		}
	}
	return offsets
}

// wasTerminated reports whether this end asked for the process's termination.
func (p *process) wasTerminated() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

// state returns how the process is, and what is closed when that changes.
func (p *process) state() (last uint64, exit *execwirev1.ExitRecord, closed bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, p.exit, p.closed, p.changed
}
