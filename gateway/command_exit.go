package gateway

import (
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// closeTimeout is how long the exit notification of the older dialect waits for the
// streams to close. Descendants can hold the streams open indefinitely.
const closeTimeout = 2 * time.Second

// awaitClose starts the timer for the exit of a process of the older dialect. events
// are those just received. mu is held.
func (t *processTable) awaitClose(p *process, events []*execwirev1.ProcessEvent) {
	switch {
	case events[len(events)-1].GetClosed() != nil:
		p.closeWait.stop()
		return
	case !p.mode.legacy, p.exit == 0, p.exitSent, p.closeWait != nil, t.conn.ctx.Err() != nil:
		return
	}
	generation := p.generation
	p.closeWait = t.conn.after(closeTimeout, func() {
		if t.exitIsDue(p, generation) {
			_ = t.deliverPending(p) // the receiving goroutine learns of a lost connection
		}
	})
}

// exitIsDue makes the exit precede the pending events, which came after it. It reports
// whether the caller must deliver.
func (t *processTable) exitIsDue(p *process, generation int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.generation != generation {
		return false
	}
	p.exitDue = true
	return t.startDelivery(p)
}

// takeLateExit reports whether the exit must be sent now. The delivering goroutine
// calls it with mu held.
func (p *process) takeLateExit() bool {
	due := p.exitDue && !p.exitSent
	p.exitDue = false
	return due
}

// sendLateExit sends the exit of a process that has not closed.
func (t *processTable) sendLateExit(p *process) error {
	err := t.conn.out.sendOne(func(dst []byte) []byte {
		dst = p.appendCommandExited(dst)
		p.gap = nil
		return dst
	})
	if err == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		p.exitDelivered = true
		t.marks.note(p, 0, 0)
	}
	return t.noteSendError(err)
}
