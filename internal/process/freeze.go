package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/execwire/execwire/internal/sandbox"
)

// errInterrupted ends the goroutines that Freeze interrupts.
var errInterrupted = errors.New("interrupted to freeze the supervisor")

// Freeze makes all processes of s stand still for this program, and returns the state with which
// [Restore] goes on in another program. The processes themselves run on. What was read of their output
// is in their logs, and nothing more is read; an exit was noticed, or will be by the next program. Kills
// and timeouts under way are part of the state. The state has the given processes first, in their
// order, and then the others that have not been released. Its files are those of s.
//
// Starts are refused, and Freeze waits for those under way; if ctx ends first, everything goes on, and
// Freeze returns its cause. After Freeze comes Thaw, or the program ends. Until then methods that
// change processes block, and most others too.
func (s *Supervisor) Freeze(ctx context.Context, first []*Process) (*SupervisorState, error) {
	s.mu.Lock()
	s.freezing = true
	s.mu.Unlock()
	placeholders, err := s.standStill(ctx)
	if err != nil {
		s.Thaw()
		return nil, fmt.Errorf("failed to wait for starts and kills under way: %w", err)
	}
	others := map[*Process]bool{}
	for _, p := range s.tracked() {
		others[p] = true
	}
	for _, p := range first {
		delete(others, p)
	}
	processes := slices.AppendSeq(slices.Clone(first), maps.Keys(others))
	for _, p := range processes {
		p.mu.Lock()
	}
	s.mu.Lock()
	s.frozen = processes
	s.mu.Unlock()
	return s.stateOf(processes, placeholders), nil
}

// standStill ends all goroutines that change processes. It returns what these use of sandboxes.
func (s *Supervisor) standStill(ctx context.Context) (map[*Process][]sandbox.Placeholder, error) {
	if err := s.waitCounts(ctx, func(c counts) bool { return c.starts == 0 }); err != nil {
		return nil, err
	}
	if err := tracker.freeze(ctx); err != nil {
		return nil, err
	}
	s.frozenAt = time.Now()
	s.interrupt(errInterrupted)
	for _, p := range s.tracked() {
		p.interrupt()
	}
	err := s.waitCounts(context.WithoutCancel(ctx), func(c counts) bool { return c.interruptible == 0 })
	if err != nil {
		return nil, err
	}
	return s.placeholders(ctx)
}

// placeholders returns what processes use of sandboxes. A file system can delay that.
func (s *Supervisor) placeholders(ctx context.Context) (map[*Process][]sandbox.Placeholder, error) {
	found := make(chan map[*Process][]sandbox.Placeholder, 1)
	s.goTracked(func() {
		all := map[*Process][]sandbox.Placeholder{}
		for _, p := range s.tracked() {
			if p.sandboxUsage != nil {
				all[p] = p.sandboxUsage.Placeholders()
			}
		}
		found <- all
	})
	select {
	case all := <-found:
		return all, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Thaw makes everything go on after Freeze.
func (s *Supervisor) Thaw() {
	s.mu.Lock()
	interrupted := s.streaming.Err() != nil && s.ctx.Err() == nil
	if interrupted {
		s.streaming, s.interrupt = context.WithCancelCause(s.ctx)
	}
	frozen := s.frozen
	s.freezing, s.frozen = false, nil
	s.mu.Unlock()
	if interrupted {
		for _, p := range s.tracked() {
			p.lastOutput.Add(int64(time.Since(s.frozenAt))) // output may have waited
		}
	}
	for _, p := range frozen {
		p.mu.Unlock()
	}
	if interrupted {
		for _, p := range s.tracked() {
			p.resume()
		}
	}
	tracker.thaw()
}

// interrupt ends the goroutines of p between two operations.
func (p *Process) interrupt() {
	_ = p.leader.file.SetReadDeadline(pastDeadline)
	for _, s := range p.streams {
		_ = s.file.SetReadDeadline(pastDeadline)
	}
	if p.stdin != nil {
		_ = p.stdin.file.SetWriteDeadline(pastDeadline)
	}
}

// resume starts the goroutines of p that interrupt has ended.
func (p *Process) resume() {
	_ = p.leader.file.SetReadDeadline(noDeadline)
	for _, s := range p.streams {
		if !s.hasEnded() {
			_ = s.file.SetReadDeadline(noDeadline)
			p.supervisor.goInterruptible(s.run)
		}
	}
	if p.stdin != nil {
		p.stdin.resume()
	}
	if p.State() < StateExited {
		p.supervisor.goInterruptible(p.waitExit)
	}
}

func (in *stdin) resume() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return
	}
	_ = in.file.SetWriteDeadline(noDeadline)
	if in.draining {
		in.start(in.drain)
	}
}

// freeze ends the goroutine of the tracker between two of its steps. If ctx ends first it returns its
// cause, and thaw undoes it.
func (t *processTracker) freeze(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.frozen = true
	t.wake.Set()
	for t.running {
		ended := t.ended.Wait()
		t.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
		}
		t.mu.Lock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (t *processTracker) thaw() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.frozen = false
	t.wakeUp()
}
