package terminal

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/tty"
)

const (
	// interruptWindow is the window in which repeated SIGINTs escalate.
	interruptWindow = 3 * time.Second
	// repeatInterval is the minimum time between SIGTERMs that escalate: timeout(1) sends
	// one to its command and one to the command's process group.
	repeatInterval = 500 * time.Millisecond
	// descendantsGrace is how long descendants may take to end, before they are killed,
	// after a process that received a terminating signal has exited.
	descendantsGrace = 2 * time.Second
)

// signalForwarder forwards the signals of this program to the process. Its loop uses the
// fields that follow exited.
type signalForwarder struct {
	how    Options
	keys   *tty.Keyboard
	target execwirev1.SignalTarget
	abort  context.CancelCauseFunc
	// lost is whether the connection is lost and that was reported: most are restored before.
	lost atomic.Bool
	// shown is what this program's terminal shows; nil unless that of the process is shown on it.
	shown *mirror

	resize    chan *execwirev1.TerminalSize
	signals   chan *execwirev1.RunSignal
	terminate chan *execwirev1.Termination

	got    chan os.Signal
	looks  chan struct{} // receives when this program's terminal may have another size
	ended  chan struct{} // closed to end the loop
	over   chan struct{} // closed when the loop has ended
	exited chan struct{} // closed when the process has exited

	// balances are how many more signals of a number this program has received than the
	// guardian.
	balances map[syscall.Signal]int
	measure  func() *execwirev1.TerminalSize // of this program's terminal; nil without one
	size     *execwirev1.TerminalSize        // at the last look; nil before
	// stopLooks ends the calls that fill looks.
	stopLooks func()
	// interrupts are the times of recent SIGINTs, terms those of all SIGTERMs that count.
	interrupts, terms []time.Time
	hungUp            bool // whether Hangup is closed
	// hasExited is whether the process has exited, and ending whether to terminate its
	// descendants then.
	hasExited, ending bool
	// killed is the signal whose repetition killed the process, or 0.
	killed syscall.Signal
}

func newSignalForwarder(how Options, keys *tty.Keyboard, giveUp context.CancelCauseFunc) *signalForwarder {
	s := &signalForwarder{
		how:       how,
		keys:      keys,
		target:    execwirev1.SignalTarget_SIGNAL_TARGET_GROUP,
		abort:     giveUp,
		resize:    make(chan *execwirev1.TerminalSize, 2),
		signals:   make(chan *execwirev1.RunSignal, 16),
		terminate: make(chan *execwirev1.Termination, 1),
		got:       make(chan os.Signal, 16),
		looks:     make(chan struct{}, 1),
		ended:     make(chan struct{}),
		over:      make(chan struct{}),
		exited:    make(chan struct{}),
		ending:    how.NoWaitDescendants,
		balances:  map[syscall.Signal]int{},
		measure:   func() *execwirev1.TerminalSize { return Size(how.Out, how.In, how.Err) },
		stopLooks: func() {},
	}
	if how.Terminal {
		s.target = execwirev1.SignalTarget_SIGNAL_TARGET_FOREGROUND
	}
	return s
}

// begin intercepts the signals; end restores them, and returns the signal whose
// repetition killed the process, or 0. If it has received a SIGTERM, this program ignores
// it from then on: the duplicate of timeout(1) may come when the process has ended, and
// must not replace its exit code.
func (s *signalForwarder) begin() {
	signal.Notify(s.got, Unignored(handled...)...)
	if s.how.Terminal {
		s.stopLooks = tty.OnResize(func() {
			select {
			case s.looks <- struct{}{}:
			default:
			}
		})
	}
	go s.loop()
}

func (s *signalForwarder) end() (killed syscall.Signal) {
	s.stopLooks()
	close(s.ended)
	<-s.over
	if len(s.terms) > 0 {
		signal.Ignore(syscall.SIGTERM)
	}
	signal.Stop(s.got)
	return s.killed
}

func (s *signalForwarder) loop() {
	defer close(s.over)
	exited := s.exited
	for {
		select {
		case <-exited:
			exited = nil
			s.hasExited = true
			s.endDescendants()
		case <-s.ended:
			return
		case sig := <-s.got:
			if sig := sig.(syscall.Signal); s.isSeparate(sig, 1) {
				s.handle(sig)
			}
		case sig := <-s.how.GuardianSignals:
			if s.isSeparate(sig, -1) {
				s.handle(sig)
			}
		case <-s.looks:
			s.look()
		}
	}
}

// isSeparate reports whether a signal received by this program (1) or its guardian (-1)
// is not a duplicate of one received by the other: a signal to the process group
// reaches both.
func (s *signalForwarder) isSeparate(sig syscall.Signal, receiver int) bool {
	s.balances[sig] += receiver
	return s.balances[sig]*receiver > 0
}

func (s *signalForwarder) handle(sig syscall.Signal) {
	switch sig {
	case syscall.SIGPIPE:
	case syscall.SIGINT:
		s.interrupt()
	case syscall.SIGTERM:
		s.term()
	case syscall.SIGHUP:
		s.hangUp()
	default:
		s.forwardTerminating(sig)
	}
}

// redraw makes a full-screen program redraw itself after an attach, by changing the
// size of its terminal. It is called before begin.
func (s *signalForwarder) redraw() {
	size := s.measure()
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

// look sends the new size, if it has changed, replacing one that was not yet sent.
func (s *signalForwarder) look() {
	if size := s.measure(); size != nil && !proto.Equal(size, s.size) {
		s.size = size
		if s.how.OnResize != nil {
			s.how.OnResize(size)
		}
		if s.shown != nil {
			s.shown.resize(size)
		}
		replacePending(s.resize, size)
	}
}

// replacePending sends a value, replacing one that was not yet received. Only one
// goroutine sends.
func replacePending[T any](c chan T, value T) {
	select {
	case <-c:
	default:
	}
	c <- value
}

// hangUp handles the end of this program's terminal.
func (s *signalForwarder) hangUp() {
	switch {
	case s.how.Hangup == nil:
		s.forwardTerminating(syscall.SIGHUP)
	case !s.hungUp:
		s.hungUp = true
		close(s.how.Hangup)
	}
}

// forward forwards a signal. While the connection is lost it cannot be delivered, so it
// applies to this program.
func (s *signalForwarder) forward(sig syscall.Signal) {
	select {
	case s.signals <- &execwirev1.RunSignal{Signal: execwirev1.Signal(sig), Target: s.target}:
	default: // more than is plausible
	}
	if s.lost.Load() {
		s.abort(ErrInterrupted)
	}
}

// reportLost records that a loss is reported. Signals that wait since before, in case the
// connection would be restored at once, apply to this program now. Any goroutine may call it.
func (s *signalForwarder) reportLost() {
	s.lost.Store(true) // before it looks: forward looks after it has sent
	if len(s.signals) > 0 {
		s.abort(ErrInterrupted)
	}
}

// forwardTerminating forwards a terminating signal. Once the process has exited, its
// descendants are terminated: they may be in other process groups, which the signal
// does not reach, and keep the output open.
func (s *signalForwarder) forwardTerminating(sig syscall.Signal) {
	s.forward(sig)
	s.ending = true
	s.endDescendants()
}

// endDescendants terminates the descendants of an exited process, if requested.
func (s *signalForwarder) endDescendants() {
	if s.hasExited && s.ending && s.killed == 0 {
		replacePending(s.terminate, &execwirev1.Termination{Mode: &execwirev1.Termination_Graceful{
			Graceful: &execwirev1.GracefulTermination{Timeout: durationpb.New(descendantsGrace)}}})
	}
}

// interrupt forwards SIGINT; the third kills, the fourth gives up, and another
// terminates this program in any state.
func (s *signalForwarder) interrupt() {
	now := time.Now()
	s.interrupts = slices.DeleteFunc(s.interrupts, func(at time.Time) bool { return now.Sub(at) > interruptWindow })
	s.interrupts = append(s.interrupts, now)
	s.escalate(syscall.SIGINT, len(s.interrupts)-3)
}

// term forwards SIGTERM; the second kills, the third gives up, and another terminates
// this program. One that immediately follows another is a duplicate.
func (s *signalForwarder) term() {
	now := time.Now()
	if n := len(s.terms); n > 0 && now.Sub(s.terms[n-1]) < repeatInterval {
		return
	}
	s.terms = append(s.terms, now)
	s.escalate(syscall.SIGTERM, len(s.terms)-2)
}

// escalate handles a signal that was repeated: from step 0 on it kills the process with
// all its descendants, then gives up, then terminates this program. Before, it forwards
// the signal.
func (s *signalForwarder) escalate(sig syscall.Signal, step int) {
	switch {
	case step < 0:
		s.forwardTerminating(sig)
	case step == 0:
		s.killed = sig
		replacePending(s.terminate, &execwirev1.Termination{Mode: &execwirev1.Termination_Force{Force: &execwirev1.ForcedTermination{}}})
	case step == 1:
		s.abort(ErrInterrupted)
	default:
		s.keys.Restore()
		os.Exit(128 + int(sig))
	}
}

// Unignored returns signals, and SIGINT and SIGHUP unless nohup or & of a shell made this
// program ignore them.
func Unignored(list ...os.Signal) []os.Signal {
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if !signal.Ignored(sig) {
			list = append(list, sig)
		}
	}
	return list
}
