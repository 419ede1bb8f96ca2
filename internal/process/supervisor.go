package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/eventlog"
)

// Config bounds what a Supervisor's processes may cost. Zero fields take the defaults.
type Config struct {
	StdinQueueBytes int          // default 1 MiB: most bytes that wait to be written to one process
	MaxWriteBytes   int          // default 1 MiB: most bytes of one WriteStdin
	Logger          *slog.Logger // default: discards

	// Cgroups is where processes get control groups; the Supervisor closes it. Nil: they get none.
	Cgroups *Cgroups
	// AdoptOrphans makes this program the parent of all descendants whose own parents have ended, so that none can
	// hide. Children of this program in another session than its own then count as descendants of processes, are
	// reaped, and may be killed: set it only if nothing else in the program starts such children.
	AdoptOrphans bool
	// UserProcesses is the RLIMIT_NPROC of processes, so that this program can have more
	// than they. It is set right after the fork: what a process has forked before is
	// looked for among its descendants. Default 0: that of this program.
	UserProcesses uint64
	// OOMScoreAdjust is added to this program's oom_score_adj for processes, up to 1000,
	// so that they are killed before it when memory runs out. Default 0.
	OOMScoreAdjust int
}

func (c Config) withDefaults() Config {
	if c.StdinQueueBytes <= 0 {
		c.StdinQueueBytes = 1 << 20
	}
	if c.MaxWriteBytes <= 0 {
		c.MaxWriteBytes = 1 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Supervisor starts processes and owns all their goroutines. All methods may be called concurrently.
type Supervisor struct {
	config    Config
	inherited inherited
	restraint restraint
	adopts    bool
	ended     func() // what Close does once at its end

	groupsByNumber bool // see the package's comment
	ctx            context.Context
	cancel         context.CancelCauseFunc

	reachable atomic.Bool // a confined process with the network was started; see CheckPeer
	ungrouped atomic.Bool // one was without a control group

	// findDirectory is checkDirectory: what a start waits for when a file system is dead, for ever if need be.
	findDirectory func(dir string) error

	mu        sync.Mutex
	closing   bool
	processes map[*Process]struct{}
	starts    int           // under way
	running   int           // goroutines
	idle      chan struct{} // closed when closing and there are neither
}

// NewSupervisor prepares this process to have children: it marks all its descriptors above 2 close-on-exec and takes
// over signals that it was started to ignore, until Close. Nothing is kept running while there are no processes, but
// for a goroutine that waits if it adopts orphans.
func NewSupervisor(config Config) *Supervisor {
	s := &Supervisor{
		config:         config.withDefaults(),
		inherited:      shedInherited(),
		restraint:      newRestraint(config),
		groupsByNumber: !canSignalGroups(),
		processes:      make(map[*Process]struct{}),
		idle:           make(chan struct{}),

		findDirectory: checkDirectory,
	}
	s.ended = sync.OnceFunc(s.end)
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	if config.AdoptOrphans {
		err := children.startAdopting()
		if s.adopts = err == nil; err != nil {
			s.config.Logger.Warn("orphans cannot be adopted, so no kill can be verified", "error", err)
		}
	}
	return s
}

// end gives back what NewSupervisor took.
func (s *Supervisor) end() {
	if s.adopts {
		children.stopAdopting()
	}
	children.rest()
	if err := s.config.Cgroups.Close(); err != nil {
		s.config.Logger.Warn("failed to remove control groups", "error", err)
	}
	s.inherited.release()
}

// canSignalGroups asks the kernel whether pidfds do for process groups.
func canSignalGroups() bool {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	err = unix.PidfdSendSignal(fd, 0, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP)
	return !errors.Is(err, unix.EINVAL)
}

// Start starts a process and returns when its program was executed, or with an *Error that says why it could not be.
// It does not wait for anything else; ctx is only looked at before, unless the process is confined: then its end ends
// the start. A file system that does not answer holds it up, and nobody else. A failed start leaves nothing behind.
// Kinds: the first nine, and ShuttingDown.
func (s *Supervisor) Start(ctx context.Context, spec Spec) (*Process, error) {
	if err := spec.validate(); err != nil {
		return nil, err
	}
	if !s.beginStart() {
		return nil, errClosing()
	}
	defer s.endStart()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("failed to start process: %w", context.Cause(ctx))
	}
	if err := s.checkDirectory(&spec); err != nil {
		return nil, err
	}
	program, err := spec.resolve()
	if err != nil {
		return nil, err
	}
	for wait := time.Millisecond; ; wait *= 2 {
		p, err := s.bear(ctx, spec, program)
		if p == nil {
			return nil, err
		}
		known := s.add(p)
		p.begin()
		switch {
		case !known: // Close has looked already, and waits for this start
			err = errClosing()
		case err == nil:
			return p, nil
		}
		p.undo()
		if !errors.Is(err, unix.ETXTBSY) || wait >= 1<<busyRetries*time.Millisecond {
			return nil, err
		}
		<-time.NewTimer(wait).C
	}
}

// undo ends a process that nobody is to know of, with all it has, and waits for that.
func (p *Process) undo() {
	p.kill(CauseServerShutdown)
	<-p.waited
	p.abandon()
	<-p.closed
}

// bear makes a process of a child that it forks. If it fails and returns one all the same, that is not what was asked
// for: it is to be undone when it has begun.
func (s *Supervisor) bear(ctx context.Context, spec Spec, program string) (*Process, error) {
	pl, err := plumb(&spec)
	if err != nil {
		return nil, err
	}
	begun := children.beginFork()
	defer children.endFork(begun)
	k := &kin{forked: ticksNow(), streams: pl.identify()}
	c, err := s.spawn(ctx, &spec, program, pl)
	pl.closeChild()
	if c.pid == 0 {
		pl.closeAll()
		return nil, err
	}
	p := s.adopt(spec, c, pl, k)
	children.register(p)
	return p, err
}

func errClosing() error {
	return refuse(ShuttingDown, "start process", "the server is shutting down")
}

// beginStart counts a start for Close to wait for, unless it has begun.
func (s *Supervisor) beginStart() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.starts++
	}
	return !s.closing
}

func (s *Supervisor) endStart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts--
	s.checkIdle()
}

// checkIdle tells Close that there is nothing left to wait for. Called with mu held.
func (s *Supervisor) checkIdle() {
	if !s.closing || s.starts > 0 || s.running > 0 {
		return
	}
	select {
	case <-s.idle: // by another Close
	default:
		close(s.idle)
	}
}

// adopt makes a Process of a child that runs. Nothing goes on in it before begin.
func (s *Supervisor) adopt(spec Spec, c child, pl *plumbing, k *kin) *Process {
	p := &Process{
		supervisor: s,
		spec:       spec,
		pid:        c.pid,
		startedAt:  time.Now(),
		log:        eventlog.New(spec.Output),
		terminal:   pl.terminal,
		pidfdFile:  c.pidfd,
		kin:        k,
		cgroup:     c.cgroup,
		release:    c.release,
		exited:     make(chan struct{}),
		waited:     make(chan struct{}),
		closed:     make(chan struct{}),
		state:      StateRunning,
	}
	k.pid = c.pid
	if c.cgroup != nil {
		k.cgroup = c.cgroup.path()
	}
	p.spec.Env = nil
	p.confine(spec.Sandbox)
	p.pidfd = rawConn(c.pidfd)
	if pl.terminal != nil {
		p.size = spec.Terminal.withDefaults()
		p.in = s.newStdin(pl.terminal, true)
		p.addStream(pl.terminal, eventlog.Terminal)
	} else {
		if pl.stdin != nil {
			p.in = s.newStdin(pl.stdin, false)
		}
		p.addStream(pl.stdout, eventlog.Stdout)
		p.addStream(pl.stderr, eventlog.Stderr)
	}
	return p
}

func (s *Supervisor) newStdin(file *os.File, terminal bool) *stdin {
	return &stdin{file: file, conn: rawConn(file), terminal: terminal, limit: s.config.StdinQueueBytes, start: s.goRun}
}

func (p *Process) addStream(file *os.File, id eventlog.Stream) {
	p.streams = append(p.streams, &stream{
		process: p, file: file, conn: rawConn(file), writer: p.log.Writer(id), terminal: id == eventlog.Terminal,
	})
	p.open++
	p.unsettled++
}

// add makes p one that Close kills, unless it has looked already.
func (s *Supervisor) add(p *Process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.processes[p] = struct{}{}
	}
	return !s.closing
}

// begin sets p going.
func (p *Process) begin() {
	p.startTimers()
	for _, stream := range p.streams {
		p.supervisor.goRun(func() { stream.run(p.supervisor.ctx) })
	}
	p.supervisor.goRun(p.wait)
}

func (s *Supervisor) remove(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.processes, p)
}

// goRun runs f in a goroutine that Close waits for.
func (s *Supervisor) goRun(f func()) {
	s.runs()
	go func() {
		defer s.ran()
		f()
	}()
}

// runs counts something for Close to wait for, until ran.
func (s *Supervisor) runs() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
}

func (s *Supervisor) ran() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.checkIdle()
}

var errShutdown = errors.New("the supervisor was closed")

// Close refuses new starts, kills every process with CauseServerShutdown and all descendants, also those that were left
// alone, and waits until all are closed and all goroutines and starts under way have ended, or for the end of ctx, whose cause it returns. It frees the logs, so that
// no owner can hold it up; streams that are still open when a process has exited are given up. It may be called again.
func (s *Supervisor) Close(ctx context.Context) error {
	s.runs() // what is left of processes that have closed is nothing to wait for until it is being killed
	processes := s.refuse()
	for _, p := range processes {
		p.log.Free()
		p.kill(CauseServerShutdown)
	}
	s.ran()
	for _, p := range processes {
		select {
		case <-p.waited:
			p.abandon()
		case <-ctx.Done():
			return fmt.Errorf("failed to wait for the exit of process %d: %w", p.pid, context.Cause(ctx))
		}
	}
	s.cancel(errShutdown) // for streams that wait for an owner who came after Free
	select {
	case <-s.idle:
		return s.settle(ctx)
	case <-ctx.Done():
		return fmt.Errorf("failed to wait for %s: %w", s.leftovers(), context.Cause(ctx))
	}
}

// settle waits until those are dead who are left of all processes and of which nobody knew whose they were.
func (s *Supervisor) settle(ctx context.Context) error {
	if s.adopts {
		if err := children.settle(ctx); err != nil {
			return fmt.Errorf("failed to wait for orphans: %w", err)
		}
	}
	s.ended()
	return nil
}

func (s *Supervisor) leftovers() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starts > 0 {
		return fmt.Sprintf("starts under way (%d), perhaps on a file system that does not answer", s.starts)
	}
	return "the processes' streams"
}

// refuse begins the end and returns the processes there are.
func (s *Supervisor) refuse() []*Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	return slices.Collect(maps.Keys(s.processes))
}
