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

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// impatience is the time in which several SIGINT mean more than one.
const impatience = 3 * time.Second

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
	// interrupts are the times of the last SIGINTs; the loop's own.
	interrupts []time.Time
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
	for sig := range s.got {
		switch sig {
		case syscall.SIGPIPE:
		case syscall.SIGWINCH, syscall.SIGCONT:
			s.resized()
		case syscall.SIGINT:
			s.interrupt()
		case syscall.SIGHUP:
			s.hangUp()
		default:
			s.pass(sig.(syscall.Signal))
		}
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
		s.pass(syscall.SIGHUP)
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
		s.pass(syscall.SIGINT)
	case n == 3:
		s.kill()
	case n == 4:
		s.giveUp(errGaveUp)
	default:
		s.keys.restore()
		os.Exit(codeInterrupted)
	}
}

func (s *signalling) kill() {
	select {
	case s.terminate <- &execwirev1.Termination{
		Mode: &execwirev1.Termination_Force{Force: &execwirev1.ForcedTermination{}},
	}:
	default:
	}
}
