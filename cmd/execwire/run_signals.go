package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const (
	// impatience is the time in which several SIGINT mean more than one.
	impatience = 3 * time.Second
	// repeatAfter is how long after a SIGTERM the next one counts: timeout(1) sends
	// one to its command and then one to the command's process group.
	repeatAfter = 500 * time.Millisecond
	// descendantsGrace is how long descendants have to end, before they are killed,
	// once a process that got a terminating signal has exited.
	descendantsGrace = 2 * time.Second
)

// signalling passes the signals this program gets on to the process.
type signalling struct {
	std    streams
	keys   *keyboard
	target execwirev1.SignalTarget
	hangup chan struct{} // of attention
	giveUp context.CancelCauseFunc

	left sync.Once // closes hangup
	// lost is whether the connection is lost at the moment.
	lost atomic.Bool

	resize    chan *execwirev1.TerminalSize
	signals   chan *execwirev1.RunSignal
	terminate chan *execwirev1.Termination

	got  chan os.Signal
	over chan struct{}
	// passed has the signals that the guardian of this program got, and counts, of
	// signals by number, how many this program and the guardian got; the loop's own.
	passed <-chan syscall.Signal
	counts map[syscall.Signal]*[2]int
	// interrupts are the times of the last SIGINTs, terms those of all SIGTERMs that
	// count; the loop's own.
	interrupts, terms []time.Time

	mu sync.Mutex
	// exited is whether the process has, and ending whether what is left of it is
	// terminated then. Guarded by mu.
	exited, ending bool
	// killed is the signal whose repetition had the process killed. Guarded by mu.
	killed syscall.Signal
}

func newSignalling(how attention, std streams, keys *keyboard, giveUp context.CancelCauseFunc) *signalling {
	s := &signalling{
		std:       std,
		keys:      keys,
		target:    execwirev1.SignalTarget_SIGNAL_TARGET_GROUP,
		hangup:    how.hangup,
		giveUp:    giveUp,
		resize:    make(chan *execwirev1.TerminalSize, 2),
		signals:   make(chan *execwirev1.RunSignal, 16),
		terminate: make(chan *execwirev1.Termination, 1),
		got:       make(chan os.Signal, 16),
		over:      make(chan struct{}),
		ending:    how.noWaitDescendants,
		passed:    how.passed,
		counts:    map[syscall.Signal]*[2]int{},
	}
	if how.terminal {
		s.target = execwirev1.SignalTarget_SIGNAL_TARGET_FOREGROUND
	}
	return s
}

// begin takes the signals over; end gives them back.
func (s *signalling) begin() {
	list := []os.Signal{
		syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGWINCH,
		// The terminal may have another size when this program was stopped.
		syscall.SIGCONT,
		// Taken, not ignored, which processes would inherit: a write to a pipe
		// without a reader is then an error, and not the end.
		syscall.SIGPIPE,
	}
	// What nohup or a shell's & made this program ignore stays ignored.
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if !signal.Ignored(sig) {
			list = append(list, sig)
		}
	}
	signal.Notify(s.got, list...)
	go s.loop()
}

func (s *signalling) end() {
	signal.Stop(s.got)
	close(s.got)
	<-s.over
}

func (s *signalling) loop() {
	defer close(s.over)
	for {
		select {
		case sig, open := <-s.got:
			if !open {
				return
			}
			if sig := sig.(syscall.Signal); s.isAnother(sig, 0) {
				s.handle(sig)
			}
		case sig := <-s.passed:
			if s.isAnother(sig, 1) {
				s.handle(sig)
			}
		}
	}
}

// isAnother reports whether a signal that came to this program (0) or to its guardian
// (1) has not come to the other before: one for the process group comes to both.
func (s *signalling) isAnother(sig syscall.Signal, to int) bool {
	n := s.counts[sig]
	if n == nil {
		n = &[2]int{}
		s.counts[sig] = n
	}
	n[to]++
	return n[to] > n[1-to]
}

func (s *signalling) handle(sig syscall.Signal) {
	switch sig {
	case syscall.SIGPIPE:
	case syscall.SIGWINCH, syscall.SIGCONT:
		s.resized()
	case syscall.SIGINT:
		s.interrupt()
	case syscall.SIGTERM:
		s.term()
	case syscall.SIGHUP:
		s.hangUp()
	default:
		s.passTerminating(sig)
	}
}

// redraw has the program at a terminal draw anew for somebody who has not seen
// what it drew before: it does that when its size changes. It comes before
// begin.
func (s *signalling) redraw() {
	size := terminalSize(s.std)
	if size == nil {
		return
	}
	other := proto.CloneOf(size)
	if other.Rows--; other.Rows == 0 {
		other.Rows = 2
	}
	s.resize <- other
	s.resize <- size
}

// resized passes the new size on, in place of one that was not yet taken.
func (s *signalling) resized() {
	size := terminalSize(s.std)
	if size == nil || s.target != execwirev1.SignalTarget_SIGNAL_TARGET_FOREGROUND {
		return
	}
	select {
	case <-s.resize:
	default:
	}
	s.resize <- size
}

// hangUp is what the end of this program's terminal means.
func (s *signalling) hangUp() {
	if s.hangup == nil {
		s.passTerminating(syscall.SIGHUP)
		return
	}
	s.left.Do(func() { close(s.hangup) })
}

// pass sends a signal on. While the connection is lost nobody would get it:
// then it is for this program.
func (s *signalling) pass(sig syscall.Signal) {
	if s.lost.Load() {
		s.giveUp(errGaveUp)
		return
	}
	select {
	case s.signals <- &execwirev1.RunSignal{Signal: execwirev1.Signal(sig), Target: s.target}:
	default: // more than anybody can have meant
	}
}

// passTerminating passes on a signal by which programs are ended. Once the process
// has exited, what is left of it is terminated: its descendants may be in other
// process groups, where the signal does not reach them, and hold the output open.
func (s *signalling) passTerminating(sig syscall.Signal) {
	s.pass(sig)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	s.endDescendants()
}

// processExited notes that the process has exited.
func (s *signalling) processExited() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exited = true
	s.endDescendants()
}

// endDescendants terminates what an exited process has left, if that is to end.
// Called with mu held.
func (s *signalling) endDescendants() {
	if s.exited && s.ending && s.killed == 0 {
		s.sendTermination(&execwirev1.Termination{Mode: &execwirev1.Termination_Graceful{
			Graceful: &execwirev1.GracefulTermination{Timeout: durationpb.New(descendantsGrace)}}})
	}
}

// interrupt passes SIGINT on; the third kills, the fourth gives up, and one
// more ends this program whatever it is stuck in.
func (s *signalling) interrupt() {
	now := time.Now()
	for len(s.interrupts) > 0 && now.Sub(s.interrupts[0]) > impatience {
		s.interrupts = s.interrupts[1:]
	}
	s.interrupts = append(s.interrupts, now)
	switch n := len(s.interrupts); {
	case n <= 2:
		s.passTerminating(syscall.SIGINT)
	default:
		s.insist(syscall.SIGINT, n-3)
	}
}

// term passes SIGTERM on; the second kills, the third gives up, and one more ends
// this program. One that comes at once after another is the same.
func (s *signalling) term() {
	now := time.Now()
	if n := len(s.terms); n > 0 && now.Sub(s.terms[n-1]) < repeatAfter {
		return
	}
	s.terms = append(s.terms, now)
	if n := len(s.terms); n > 1 {
		s.insist(syscall.SIGTERM, n-2)
		return
	}
	s.passTerminating(syscall.SIGTERM)
}

// insist is what a signal means that was repeated: it kills the process with all its
// descendants, then gives up on it, then ends this program.
func (s *signalling) insist(sig syscall.Signal, step int) {
	switch step {
	case 0:
		s.kill(sig)
	case 1:
		s.giveUp(errGaveUp)
	default:
		s.keys.restore()
		os.Exit(128 + int(sig))
	}
}

// kill has the process killed with all its descendants, because of a repeated signal.
func (s *signalling) kill(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed = sig
	s.sendTermination(&execwirev1.Termination{Mode: &execwirev1.Termination_Force{Force: &execwirev1.ForcedTermination{}}})
}

// sendTermination sends a termination, in place of one that was not yet taken. Called with mu
// held.
func (s *signalling) sendTermination(how *execwirev1.Termination) {
	select {
	case <-s.terminate:
	default:
	}
	s.terminate <- how
}

// killedBy returns the signal whose repetition had the process killed; 0 if none did.
func (s *signalling) killedBy() syscall.Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.killed
}
