package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/cgroup"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/notify"
	"github.com/execwire/execwire/internal/procfs"
	"github.com/execwire/execwire/internal/sandbox"
)

// Config is the configuration of a Supervisor. Zero fields have the default.
type Config struct {
	StdinQueueBytes int          // default 1 MiB: bytes queued for one process
	MaxWriteBytes   int          // default 1 MiB: bytes of one WriteStdin
	Logger          *slog.Logger // default: discards

	// Cgroups is the pool of control groups for processes; the Supervisor closes it. Nil: none.
	Cgroups *cgroup.Pool
	// AdoptOrphans makes this program the subreaper of all descendants, so that orphans stay
	// visible. Children of this program outside of its own session then count as descendants of
	// processes, are reaped, and may be killed: set it only if the rest of the program starts no
	// such children.
	AdoptOrphans bool
	// UserProcesses is the most that RLIMIT_NPROC of processes may be, so that this program can
	// create more processes than they can. Default 0: they have the limit of this program.
	UserProcesses uint64
	// OOMScoreAdjust is added to the oom_score_adj of this program for processes, up to 1000, so
	// that the OOM killer prefers them. Default 0.
	OOMScoreAdjust int
	// Files are for output of processes without an owner; who starts a process discards its log.
	// Nil: it is only in memory.
	Files *eventlog.Files
	// Sandboxes are for Restore only: they get what confined processes use of them. Nil: none is.
	Sandboxes *sandbox.Sandboxes
	// Observer is called about starts, exits and kills. Default: nothing is.
	Observer Observer
}

// Observer counts what happens to processes. Its methods are called concurrently, with locks held,
// before the results are known to any caller. They must not block nor call this package.
type Observer interface {
	// Started is called at the end of a start that did not fail, with the time that it took. The
	// backend is 0 without a sandbox.
	Started(backend sandbox.Backend, took time.Duration)
	// NotStarted is called at the end of a start that failed; the kind is 0 for an error that is no
	// *Error, such as the end of the context.
	NotStarted(Kind)
	// Exited is called when a started process has exited.
	Exited(Cause)
	// Killed is called at the end of each kill of a process tree.
	Killed(method Method, verified bool)
}

type noObserver struct{}

func (noObserver) Started(sandbox.Backend, time.Duration) {}
func (noObserver) NotStarted(Kind)                        {}
func (noObserver) Exited(Cause)                           {}
func (noObserver) Killed(Method, bool)                    {}

func (c Config) withDefaults() Config {
	if c.StdinQueueBytes <= 0 {
		c.StdinQueueBytes = 1 << 20
	}
	if c.MaxWriteBytes <= 0 {
		c.MaxWriteBytes = 1 << 20
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
	return c
}

// ignoredSignals lists the signals that this program ignores. Its children would ignore them, too.
func ignoredSignals() (ignored []syscall.Signal) {
	status, _ := procfs.Status(os.Getpid(), "SigIgn")
	mask, _ := strconv.ParseUint(status["SigIgn"], 16, 64)
	for n := range 64 {
		if mask&(1<<n) != 0 {
			ignored = append(ignored, syscall.Signal(n+1))
		}
	}
	return ignored
}

// Supervisor starts processes and owns their goroutines. All methods may be called concurrently.
type Supervisor struct {
	config         Config
	oomScore       string           // oom_score_adj of processes; "": that of this program
	ignoredSignals []syscall.Signal // ignored by this program; processes have their default dispositions
	adoptsOrphans  bool
	releaseOnce    func() // release, once

	signalGroupsByPID bool // see the package comment
	ctx               context.Context
	cancel            context.CancelCauseFunc

	confinedPeers confinedPeers

	// checkDirectory is the function checkDirectory; tests replace it. It blocks while a file
	// system hangs.
	checkDirectory func(dir string) error

	tasks
	processes map[*Process]struct{} // guarded by mu
	frozen    []*Process            // whose locks Freeze holds; guarded by mu
	frozenAt  time.Time             // since when nothing is read
}

// tasks are the goroutines, starts and kill jobs of a Supervisor, all guarded by mu.
type tasks struct {
	mu       sync.Mutex
	closing  bool
	freezing bool // by Freeze, until Thaw
	counts   counts
	fewer    notify.Broadcast // the counts have decreased
	// streaming is the context of goroutines that can be interrupted; it ends with that of the
	// Supervisor or by interrupt.
	streaming context.Context
	interrupt context.CancelCauseFunc
}

// counts are what a Supervisor waits for.
type counts struct {
	running       int // goroutines, starts and kill jobs
	starts        int // of these
	interruptible int // of these: goroutines that end soon when they are interrupted, see Freeze
}

// NewSupervisor returns a supervisor. It sets close-on-exec on all descriptors of this program above
// 2. It starts no goroutine, unless it adopts orphans.
func NewSupervisor(config Config) *Supervisor {
	s := makeSupervisor(config)
	s.adopt()
	return s
}

// makeSupervisor returns a supervisor that does not adopt orphans yet.
func makeSupervisor(config Config) *Supervisor {
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	s := &Supervisor{
		config:            config.withDefaults(),
		oomScore:          config.oomScore(),
		ignoredSignals:    ignoredSignals(),
		signalGroupsByPID: !pidfdSignalsGroups(),
		processes:         make(map[*Process]struct{}),

		checkDirectory: checkDirectory,
	}
	s.releaseOnce = sync.OnceFunc(s.release)
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.streaming, s.interrupt = context.WithCancelCause(s.ctx)
	return s
}

// adopt makes s adopt orphans if it is configured to.
func (s *Supervisor) adopt() {
	if !s.config.AdoptOrphans {
		return
	}
	err := tracker.startAdopting()
	if s.adoptsOrphans = err == nil; err != nil {
		s.config.Logger.Warn("cannot adopt orphans: no kill can be verified", "error", err)
	}
}

// release undoes NewSupervisor.
func (s *Supervisor) release() {
	if s.adoptsOrphans {
		tracker.stopAdopting()
	}
	if err := s.config.Cgroups.Close(); err != nil {
		s.config.Logger.Warn("failed to remove control groups", "error", err)
	}
}

// pidfdSignalsGroups reports whether the kernel can signal process groups through pidfds.
func pidfdSignalsGroups() bool {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	err = unix.PidfdSendSignal(fd, 0, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP)
	return !errors.Is(err, unix.EINVAL)
}

// Start starts a process and returns when its program was executed, or with an *Error. It does not
// wait for anything else. ctx is checked at the beginning, and can abort only the start of a
// confined process. A file system that hangs blocks only this start. A failed start leaves nothing
// behind. Kinds: the first nine, ShuttingDown and UserUnavailable.
func (s *Supervisor) Start(ctx context.Context, spec Spec) (*Process, error) {
	begun := time.Now()
	p, err := s.tryStart(ctx, spec)
	if err != nil {
		s.config.Observer.NotStarted(KindOf(err))
		return nil, err
	}
	var backend sandbox.Backend
	if p.sandbox != nil {
		backend = p.sandbox.Backend
	}
	s.config.Observer.Started(backend, time.Since(begun))
	return p, nil
}

// tryStart is Start without the Observer.
func (s *Supervisor) tryStart(ctx context.Context, spec Spec) (*Process, error) {
	if err := spec.validate(); err != nil {
		return nil, err
	}
	if !s.addStart() {
		return nil, errClosing()
	}
	defer s.done(oneStart)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("failed to start process: %w", context.Cause(ctx))
	}
	if err := checkUser(spec.User); err != nil {
		return nil, err
	}
	var program string
	err := asUser(spec.User, func() (err error) {
		if err = checkWorkingDirectory(&spec, s.checkDirectory); err == nil {
			program, err = spec.resolve()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for wait := time.Millisecond; ; wait *= 2 {
		p, err := s.startChild(ctx, spec, program)
		if p != nil {
			added := s.addProcess(p)
			p.observed = added && err == nil
			s.startGoroutines(p)
			if p.observed {
				return p, nil
			}
			discard(p)
			if !added { // Close is waiting for this start
				return nil, errClosing()
			}
		}
		if !errors.Is(err, unix.ETXTBSY) || wait >= 1<<textBusyRetries*time.Millisecond {
			return nil, err
		}
		<-time.NewTimer(wait).C
	}
}

// discard kills a process that was not returned to the caller, and waits for its end.
func discard(p *Process) {
	p.kill(CauseServerShutdown)
	<-p.settled
	p.closeStreams()
	<-p.Closed()
}

// startChild starts a child and returns its Process. If it fails and returns a Process all the same, the
// caller has to discard that after starting its goroutines.
func (s *Supervisor) startChild(ctx context.Context, spec Spec, program string) (*Process, error) {
	cio, err := openChildIO(&spec)
	if err != nil {
		return nil, err
	}
	fork := tracker.forks.begin()
	defer tracker.forks.end(fork)
	root := &trackedRoot{forked: procfs.BootTicks(), streams: cio.streamIDs()}
	c, err := s.spawn(ctx, &spec, program, cio)
	cio.closeChildFDs()
	if c.pid == 0 {
		cio.closeAll()
		return nil, err
	}
	p := s.newProcess(spec, c, cio, root)
	tracker.register(p)
	return p, err
}

func errClosing() error {
	return newError(ShuttingDown, "start process", "the server is shutting down")
}

// newProcess returns the Process of a child. It starts no goroutine.
func (s *Supervisor) newProcess(spec Spec, c child, cio *childIO, root *trackedRoot) *Process {
	root.pid = c.pid
	if c.cgroup != nil {
		root.cgroup = c.cgroup.Path()
	}
	p := s.makeProcess(spec, c, root, s.config.Files.New(spec.Output))
	p.startedAt, p.state = time.Now(), StateRunning
	p.spec.Env = nil
	if spec.Sandbox != nil {
		report := spec.Sandbox.Report()
		p.sandbox, p.spec.Sandbox = &report, nil
		if report.ExitByCode {
			p.wrapper = newWrapper(p.leader)
		}
	}
	if cio.terminal != nil {
		p.windowSize = spec.Terminal.WithDefaults()
		p.terminal = &terminal{master: cio.terminal, size: p.windowSize}
		p.terminal.noteSize(0)
		p.stdin = s.newStdin(cio.terminal, true)
		p.addStream(cio.terminal, eventlog.Terminal)
	} else {
		if cio.stdin != nil {
			p.stdin = s.newStdin(cio.stdin, false)
		}
		p.addStream(cio.stdout, eventlog.Stdout)
		p.addStream(cio.stderr, eventlog.Stderr)
	}
	return p
}

// makeProcess returns a Process without state, input and output streams.
func (s *Supervisor) makeProcess(spec Spec, c child, root *trackedRoot, log *eventlog.Log) *Process {
	closed, setClosed := context.WithCancelCause(context.Background())
	return &Process{
		supervisor:   s,
		spec:         spec,
		Output:       Output{log: log, onTerminal: spec.Terminal != nil, closed: closed, setClosed: setClosed},
		Input:        Input{maxWrite: s.config.MaxWriteBytes},
		processTree:  processTree{leader: newLeader(c, s.signalGroupsByPID), root: root, cgroup: c.cgroup},
		sandboxUsage: c.sandbox,
		exited:       make(chan struct{}),
		settled:      make(chan struct{}),
	}
}

// addStream adds a stream that is open and not settled.
func (p *Process) addStream(file *os.File, id eventlog.Stream) *stream {
	s := &stream{process: p, id: id, file: file, conn: rawConn(file), writer: p.log.Writer(id), terminal: id == eventlog.Terminal}
	p.streams = append(p.streams, s)
	p.openStreams++
	p.unsettledStreams++
	return s
}

func (s *Supervisor) newStdin(file *os.File, terminal bool) *stdin {
	return &stdin{file: file, conn: rawConn(file), terminal: terminal, limit: s.config.StdinQueueBytes, start: s.goInterruptible}
}

// addProcess makes Close kill p. It returns false after the beginning of Close.
func (s *Supervisor) addProcess(p *Process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.processes[p] = struct{}{}
	}
	return !s.closing
}

// startGoroutines starts the timers and goroutines of a process.
func (s *Supervisor) startGoroutines(p *Process) {
	p.mu.Lock()
	p.timeouts.start(p, p.spec.Timeout)
	p.mu.Unlock()
	p.resume()
}

// tracked returns all processes whose trees may have members.
func (s *Supervisor) tracked() []*Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.processes))
}

func (s *Supervisor) removeProcess(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.processes, p)
}

// goTracked runs f in a goroutine that Close waits for.
func (t *tasks) goTracked(f func()) { t.goCounted(counts{running: 1}, f) }

// goInterruptible runs f in a goroutine that Close waits for, and Freeze too. f has to end soon when
// its context has ended and the deadlines of its files are over.
func (t *tasks) goInterruptible(f func(context.Context)) {
	t.mu.Lock()
	ctx := t.streaming
	t.mu.Unlock()
	t.goCounted(counts{running: 1, interruptible: 1}, func() { f(ctx) })
}

func (t *tasks) goCounted(one counts, f func()) {
	t.add(one)
	go func() {
		defer t.done(one)
		f()
	}()
}

// addStart counts a start. It returns false, without effect, if Close or Freeze was called.
func (t *tasks) addStart() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing || t.freezing {
		return false
	}
	t.counts.add(oneStart, 1)
	return true
}

var oneStart = counts{running: 1, starts: 1}

// add counts what Close has to wait for until done is called.
func (t *tasks) add(one counts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.add(one, 1)
}

func (t *tasks) done(one counts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.add(one, -1)
	t.fewer.Notify()
}

func (c *counts) add(other counts, times int) {
	c.running += times * other.running
	c.starts += times * other.starts
	c.interruptible += times * other.interruptible
}

// waitCounts waits until the counts satisfy a condition. If ctx ends it returns its cause.
func (t *tasks) waitCounts(ctx context.Context, enough func(counts) bool) error {
	for {
		t.mu.Lock()
		over, fewer := enough(t.counts), t.fewer.Wait()
		t.mu.Unlock()
		if over {
			return nil
		}
		if err := notify.Wait(ctx, fewer); err != nil {
			return err
		}
	}
}

var errShutdown = errors.New("the supervisor was closed")

// Close rejects new starts, kills every process tree with CauseServerShutdown, also those left
// running, and waits until all processes are closed and all goroutines and starts have ended. If
// ctx ends first it returns its cause. It frees the logs, so that no owner can block it, and closes
// streams that are still open when a process has exited. It may be called again.
func (s *Supervisor) Close(ctx context.Context) error {
	processes := s.beginClose()
	for _, p := range processes {
		p.log.Free()
		p.kill(CauseServerShutdown)
	}
	for _, p := range processes {
		select {
		case <-p.settled:
			p.closeStreams()
		case <-ctx.Done():
			return fmt.Errorf("failed to wait for the exit of process %d: %w", p.leader.pid, context.Cause(ctx))
		}
	}
	s.cancel(errShutdown) // for streams that wait for an owner that attached after Free
	if err := s.waitCounts(ctx, func(c counts) bool { return c.running == 0 }); err != nil {
		return fmt.Errorf("failed to wait for the streams of processes, or for a start, perhaps on a file system that hangs: %w", err)
	}
	return s.settleOrphans(ctx)
}

// settleOrphans waits until all remaining orphans are dead.
func (s *Supervisor) settleOrphans(ctx context.Context) error {
	if s.adoptsOrphans {
		if err := tracker.waitForOrphans(ctx); err != nil {
			return fmt.Errorf("failed to wait for orphans: %w", err)
		}
	}
	s.releaseOnce()
	return nil
}

// beginClose rejects new starts and returns all processes.
func (s *Supervisor) beginClose() []*Process {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	return s.tracked()
}
