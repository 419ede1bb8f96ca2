package process

import (
	"sync"
	"time"

	"github.com/execwire/execwire/internal/sandbox"
)

// State is the state of a process. It only increases.
type State uint8

// The states. A Process that Start returned is past StateStarting.
const (
	StateStarting State = iota + 1
	StateRunning
	StateExited
	StateClosed
)

// noDeadline removes a deadline of an os.File. pastDeadline unblocks pending operations.
var noDeadline, pastDeadline = time.Time{}, time.Unix(1, 0)

// Process is a process that a Supervisor started. All methods may be called concurrently; those
// that block take a context. It stays usable after it was closed.
type Process struct {
	Output
	Input
	processTree
	supervisor   *Supervisor
	spec         Spec
	wrapper      *wrapper        // nil: the leader is the program
	sandbox      *sandbox.Report // nil: not confined
	sandboxUsage *sandbox.Usage  // released when no process is left; nil: not confined
	observed     bool            // its start did not fail; set before its goroutines are started

	exited  chan struct{} // closed when exit is set
	settled chan struct{} // closed when stream.settle was called for all streams

	mu               sync.Mutex
	state            State
	cause            Cause // why it is being ended; 0: it is not
	exit             ExitRecord
	windowSize       WindowSize
	unsettledStreams int // streams that may hold output from before the exit
	openStreams      int // streams that have not ended
	exitedLogged     bool
	timeouts         timeouts
	killJob          *killJob // under way
	killed           bool     // there was a kill job
	killingRest      bool     // the remaining descendants are being killed, or were
	released         bool     // see releaseAll
}

// PID returns the PID. It is not for signalling: it may be reused once the process has exited.
func (p *Process) PID() int { return p.leader.pid }

// Spec returns what the process was started with, without Env and Sandbox. It shares memory and is
// read-only.
func (p *Process) Spec() Spec { return p.spec }

// State returns the current state.
func (p *Process) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Exit returns the exit record, and whether the process has exited.
func (p *Process) Exit() (ExitRecord, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit, p.state >= StateExited
}

// Exited returns a channel that is closed when the process has exited and Exit is known.
func (p *Process) Exited() <-chan struct{} { return p.exited }
