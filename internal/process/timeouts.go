package process

import "time"

// timeouts enforces the timeouts of a Spec. It is guarded by Process.mu.
type timeouts struct {
	wallClock *time.Timer // for Spec.Timeout
	noOutput  *time.Timer // for Spec.NoOutputTimeout
}

func (t *timeouts) start(p *Process) {
	if p.spec.Timeout > 0 {
		t.wallClock = time.AfterFunc(p.spec.Timeout, func() { p.kill(CauseTimeout) })
	}
	if p.spec.NoOutputTimeout > 0 {
		t.noOutput = time.AfterFunc(p.spec.NoOutputTimeout, func() { t.checkOutput(p) })
	}
}

func (t *timeouts) stop() {
	for _, timer := range []*time.Timer{t.wallClock, t.noOutput} {
		if timer != nil {
			timer.Stop()
		}
	}
}

// checkOutput kills the process if it had no output for too long, and otherwise schedules the next
// check.
func (t *timeouts) checkOutput(p *Process) {
	remaining := p.spec.NoOutputTimeout
	// The order matters: output that is no longer blocked was read before, and LastOutput includes
	// it.
	if !p.OutputBlocked() {
		remaining -= time.Since(p.LastOutput())
	}
	if remaining <= 0 {
		p.kill(CauseNoOutput)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state < StateClosed {
		t.noOutput.Reset(remaining)
	}
}
