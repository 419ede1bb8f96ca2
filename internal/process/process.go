package process

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/sandbox"
)

// State is where a process is in its life. It only ever grows.
type State uint8

// The states. A process that a caller holds is past starting; removal is the session's business.
const (
	StateStarting State = iota + 1
	StateRunning
	StateExited
	StateClosed
)

func (s State) String() string {
	names := [...]string{"none", "starting", "running", "exited", "closed"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Arguments of os.File's deadlines: none, and one that frees whoever waits.
var noDeadline, longAgo = time.Time{}, time.Unix(1, 0)

// Process is one process that a Supervisor started. All methods may be called concurrently; those that wait take a
// context. It stays usable after it was closed.
type Process struct {
	supervisor *Supervisor
	spec       Spec
	pid        int
	startedAt  time.Time
	log        *eventlog.Log
	streams    []*stream
	in         *stdin   // nil: /dev/null
	terminal   *os.File // nil: pipes
	pidfdFile  *os.File
	pidfd      syscall.RawConn // of pidfdFile, which is closed when the process is let go
	kin        *kin
	cgroup     *cgroup         // nil: it has none. It is another's once the process was let go.
	sandbox    *sandbox.Report // nil: nothing confines it
	init       procStat        // of the namespace of the program that the leader stands for, if it was found
	release    func()          // to be called when nothing of it is left; nil: nothing confines it

	lastOutput atomic.Int64 // when there was output, in ns since startedAt; 0: never

	exited chan struct{} // closed when exit is known
	waited chan struct{} // closed when settle was called for all streams
	closed chan struct{} // closed in StateClosed

	mu           sync.Mutex
	state        State
	cause        Cause // why it is being ended; 0: it is not
	exit         ExitRecord
	size         WindowSize
	unsettled    int // streams that may hold something readable at the exit
	open         int // streams not at their end
	exitedLogged bool
	timeout      *time.Timer // of Spec.Timeout
	silence      *time.Timer // of Spec.NoOutputTimeout
	sweep        *sweep      // under way
	ended        bool        // there was one
	closing      bool        // whatever is left of it is being killed, or was
	reaped       bool
	letGone      bool // nothing of it is left to look after
}

// PID is the process's number. It is not for signalling: the number may be another's once the process has exited.
func (p *Process) PID() int { return p.pid }

// StartedAt is when the program was executed.
func (p *Process) StartedAt() time.Time { return p.startedAt }

// Log is what the process says. Its exited event may come later than Exited, see the package's comment.
func (p *Process) Log() *eventlog.Log { return p.log }

// Spec is what the process was started with, but for Env and Sandbox, which are not kept. It shares memory: read only.
func (p *Process) Spec() Spec { return p.spec }

// State returns the current state, which may be past when the caller looks at it.
func (p *Process) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Exit returns how the process ended, if it has.
func (p *Process) Exit() (ExitRecord, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit, p.state >= StateExited
}

// Exited is closed when the process was reaped and Exit is known.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Closed is closed when the log has its last event.
func (p *Process) Closed() <-chan struct{} { return p.closed }

// WriteStdin queues all of data for the process's input, or none of it, and returns without waiting for it to be read.
// It waits for room in the queue, behind earlier writers. The queue owns data from now on. Kinds: StdinNotPiped,
// StdinClosed, WriteTooLarge.
func (p *Process) WriteStdin(ctx context.Context, data []byte) error {
	if p.in == nil {
		return refuse(StdinNotPiped, "write stdin", "the process was started without an input; start it with a pipe or a terminal")
	}
	if most := p.supervisor.config.MaxWriteBytes; len(data) > most {
		return refuse(WriteTooLarge, "write stdin", fmt.Sprintf("%d bytes are more than the %d of one write; split them", len(data), most))
	}
	return p.in.put(ctx, data)
}

// CloseStdin ends the process's input after what was written before, also by writers that still wait for room: it does
// not wait for them, and later writers are refused. It does nothing if the input is closed already. Its context has no
// say. Kinds: StdinNotPiped, StdinIsTerminal.
func (p *Process) CloseStdin(context.Context) error {
	switch {
	case p.terminal != nil:
		return refuse(StdinIsTerminal, "close stdin", "a terminal's input has no end; write the byte 0x04 at the start of a line instead")
	case p.in == nil:
		return refuse(StdinNotPiped, "close stdin", "the process was started without an input")
	}
	p.in.end()
	return nil
}

// wait waits for the leader's end, with a pidfd in the poller, and takes p through exited.
func (p *Process) wait() {
	var usage unix.Rusage
	var info childInfo
	err := p.pidfd.Read(func(fd uintptr) bool {
		var dead bool
		var err error
		info, dead, err = waitChild(fd, true, &usage)
		if err != nil {
			info = childInfo{}
		}
		return dead || err != nil
	})
	record := info.record(p.startedAt, &usage)
	if p.init.pid != 0 {
		record.addUsage(p.init)
	}
	if err != nil || info.union.pid == 0 {
		p.supervisor.config.Logger.Error("lost a process: somebody else reaped it", "pid", p.pid, "error", err)
		p.mu.Lock()
		p.reap() // its number may be another's by now
		p.mu.Unlock()
		record = ExitRecord{Code: -1, Cause: CauseLost, WallTime: record.WallTime, ExitedAt: record.ExitedAt}
	}
	p.noteExit(record)
	for _, s := range p.streams {
		s.settle()
	}
	close(p.waited)
}

func (p *Process) noteExit(record ExitRecord) {
	if p.in != nil {
		p.in.shut() // before anybody is told of the exit
	}
	p.mu.Lock()
	if record.Cause == 0 && p.cause == 0 && p.killedByLimit(record) {
		record.Cause = CauseLimit
	}
	if record.Cause == 0 {
		record.Cause = max(p.cause, CauseExited)
	}
	p.exit = record
	p.state = StateExited
	close(p.exited)
	p.advance() // the streams may all have ended before
	if p.sweep != nil {
		children.look(p.sweep)
	}
	p.mu.Unlock()
}

func (p *Process) streamSettled() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unsettled--
	p.advance()
}

func (p *Process) streamEnded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
	p.advance()
}

// advance appends the last two events when their time has come. Called with mu held after each change to what it
// depends on.
func (p *Process) advance() {
	if p.state < StateExited {
		return
	}
	if !p.exitedLogged && p.unsettled == 0 {
		p.exitedLogged = true
		p.exit.SandboxDenied = p.sandbox != nil && seemsDenied(p.exit, p.log)
		p.log.AppendExited()
	}
	if p.state < StateClosed && p.exitedLogged && p.open == 0 {
		p.finish()
	}
}

// finish closes p, after whatever is left of it was killed. Called with mu held.
func (p *Process) finish() {
	stays := p.spec.LeaveDescendants && !p.ended
	switch {
	case p.sweep != nil:
		if !p.spec.LeaveDescendants {
			children.hurry(p.sweep, time.Time{}, true)
			p.closing = true
		}
		return // swept comes back here
	case !stays && !p.closing && !p.isAlone():
		p.closing = true
		p.beginSweep(&sweep{forced: true})
		return
	}
	p.log.AppendClosed()
	p.stopTimers()
	p.state = StateClosed
	if stays && (p.cgroup == nil || p.cgroup.populated()) {
		if p.cgroup == nil && p.isAlone() {
			_ = p.pidfdFile.Close() // until the look there would be thousands of them, if they are short
		}
		children.leave(p) // without a control group only a look at all processes tells that there is nobody
	} else {
		p.letGo()
	}
	close(p.closed)
}

// isAlone tells whether nobody is left of p but its zombie, which it reaps if its session may be all there is. It is
// cheap, and sees no orphans outside of the session and the control group. Called with mu held.
func (p *Process) isAlone() bool {
	if p.cgroup != nil && p.cgroup.populated() {
		return false
	}
	p.reap()
	inUse := true
	_ = p.pidfd.Control(func(fd uintptr) { inUse = isNumberInUse(fd, p.pid) })
	if !inUse {
		children.desert(p)
	}
	return !inUse
}

// reap frees the number of the leader, which is dead. Called with mu held.
func (p *Process) reap() {
	if p.reaped {
		return
	}
	p.reaped = true
	children.reaping(p)
	_ = p.pidfd.Control(func(fd uintptr) { _, _, _ = waitChild(fd, false, nil) })
}

func (p *Process) stopTimers() {
	if p.timeout != nil {
		p.timeout.Stop()
	}
	if p.silence != nil {
		p.silence.Stop()
	}
}

// letGo gives up what was needed to find and to kill what is left of p. Called with mu held.
func (p *Process) letGo() {
	if p.letGone {
		return
	}
	p.letGone = true
	p.reap()
	_ = p.pidfdFile.Close()
	children.forget(p)
	if p.cgroup != nil {
		if p.exit.Signal == unix.SIGKILL { // perhaps by somebody who killed the whole group
			p.cgroup.spoilt.Store(true)
		}
		p.cgroup.release()
	}
	if p.release != nil {
		p.supervisor.goRun(p.release) // it may wait for a file system
	}
	p.supervisor.remove(p)
}

// letGoIfAlone is for a process that has closed, when nobody that it left is left.
func (p *Process) letGoIfAlone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sweep == nil && (p.cgroup == nil || !p.cgroup.populated()) {
		p.letGo()
	}
}

// swept is called when a sweep has ended.
func (p *Process) swept(w *sweep) {
	if w.result.empty {
		for _, s := range p.streams {
			s.forsake()
		}
	}
	p.mu.Lock()
	p.sweep = nil
	if p.state == StateClosed {
		p.letGo()
	} else {
		p.advance()
	}
	p.mu.Unlock()
	close(w.done)
	p.supervisor.ran()
}

// abandon gives up on streams that are still open after the exit, held by descendants outside the group.
func (p *Process) abandon() {
	for _, s := range p.streams {
		s.end()
	}
}
