package process

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/execwire/execwire/internal/cgroup"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/procfs"
	"github.com/execwire/execwire/internal/sandbox"
)

// SupervisorState is what another program needs to go on with the processes of a [Supervisor], of
// which it must be the parent: it has the same PID. Each file occurs once.
type SupervisorState struct {
	// Processes are the processes given to [Supervisor.Freeze], and then the others.
	Processes []ProcessState
	// Forgotten are the roots of processes that are gone, whose orphans may be alive.
	Forgotten []RootState
	// Cgroups is the pool of control groups; nil: none.
	Cgroups *cgroup.State
	// Placeholders are those of the confined processes.
	Placeholders []sandbox.Placeholder
	// ConfinedMayConnect and ConfinedUngrouped are what CheckPeer knows.
	ConfinedMayConnect, ConfinedUngrouped bool
}

// ProcessState is the state of one Process.
type ProcessState struct {
	Root RootState       // of its descendants
	Spec Spec            // without Env and Sandbox
	Log  *eventlog.State // its output
	// Pidfd is the descriptor of the leader; nil: it was closed.
	Pidfd *os.File
	// Streams are those that have not ended.
	Streams []StreamState
	Stdin   *StdinState // nil: /dev/null
	// Sandbox is what confines the process; nil: nothing. Init is the init of its PID namespace; zero:
	// none is known.
	Sandbox *sandbox.Report
	Init    procfs.ID
	// Placeholders are the paths of those that the sandbox uses.
	Placeholders []string
	// Cgroup is the name of the control group in its pool; "": none.
	Cgroup      string
	CgroupDirty bool // it is not to be reused
	WindowSize  WindowSize
	Screen      []byte   // output that shows what the terminal shows; nil: nothing
	Resizes     []Resize // as Process.Resizes returns them, which is not empty if Recover has not made it

	State     State      // never StateStarting
	Exit      ExitRecord // valid from StateExited on
	StartedAt time.Time  // by the wall clock
	// Silence is the time since the last output, or else the start; Timeout is the rest of
	// Spec.Timeout. The time until Restore does not count.
	Silence, Timeout time.Duration
	Cause            Cause // why it is being ended; 0: it is not
	Kill             *KillState
	Killed           bool // it was, or is being killed
	KillingRest      bool // its remaining descendants are or were being killed
	Released         bool // nothing can be left of it
}

// StreamState is the state of an output stream that has not ended.
type StreamState struct {
	Stream       eventlog.Stream // which one it is
	File         *os.File        // the end of this program; for a terminal also that of the input
	HadOutput    bool
	WindowFull   bool // as the last read has found it
	PipeEnlarged bool
	LeaderExited bool // what was readable at the exit of the leader is known
	Settled      bool // and in the log
	Pending      int  // upper bound of the bytes that the log lacks of it
	Draining     bool // the stream ends when it is empty
}

// StdinState is the state of an input.
type StdinState struct {
	File         *os.File // nil: it is closed, or the terminal
	Queue        [][]byte // what was accepted and not written
	EndRequested bool     // the input ends after the queue
	Closed       bool
	Accepted     int64 // bytes ever queued
}

// KillState is a kill under way.
type KillState struct {
	Forced        bool          // processes are sent SIGKILL
	Deadline      time.Duration // until it is forced
	GroupSentTerm bool          // the process group was sent SIGTERM
	SentTerm      []procfs.ID   // and so were these processes
	Method        Method        // the strongest so far
}

// RootState identifies the descendants of a process.
type RootState struct {
	PID     int             // of the leader
	Forked  uint64          // a tick before the fork
	Cgroup  string          // as in /proc/PID/cgroup; "": none
	Streams []procfs.FileID // its pipes or terminal

	Tracked      bool // processes may descend from it
	Reaped       bool // the PID is valid only while its session is not empty
	SessionEmpty bool // a session with this ID belongs to another process
	Ending       bool // it has ended or is being killed, with its descendants
	LeftRunning  bool // it has closed with Spec.LeaveDescendants
	VerifiedGone bool // no descendant is left
	// Descendants were found by the last scan.
	Descendants []procfs.ID
}

// stateOf returns the state of s, with the processes, whose locks Freeze holds, and what they use of
// sandboxes.
func (s *Supervisor) stateOf(processes []*Process, placeholders map[*Process][]sandbox.Placeholder) *SupervisorState {
	state := &SupervisorState{
		Cgroups:            s.config.Cgroups.State(),
		ConfinedMayConnect: s.confinedPeers.mayConnect.Load(),
		ConfinedUngrouped:  s.confinedPeers.ungrouped.Load(),
	}
	tracker.mu.Lock()
	defer tracker.mu.Unlock()
	descendants := map[*trackedRoot][]procfs.ID{}
	if tracker.lastScan != nil {
		for id, root := range tracker.lastScan.owners {
			descendants[root] = append(descendants[root], id)
		}
	}
	others := maps.Clone(tracker.roots)
	for _, p := range processes {
		saved := p.stateWithin()
		saved.Root = tracker.stateOf(p.root, descendants[p.root])
		for _, placeholder := range placeholders[p] {
			saved.Placeholders = append(saved.Placeholders, placeholder.Path)
			if !slices.ContainsFunc(state.Placeholders, func(known sandbox.Placeholder) bool { return known.Path == placeholder.Path }) {
				state.Placeholders = append(state.Placeholders, placeholder)
			}
		}
		state.Processes = append(state.Processes, saved)
		delete(others, p.root)
	}
	for root, p := range others {
		if p == nil {
			state.Forgotten = append(state.Forgotten, tracker.stateOf(root, descendants[root]))
		}
	}
	return state
}

// stateWithin returns the state without that of the root. Called with p.mu and rootTable.mu held.
func (p *Process) stateWithin() ProcessState {
	state := ProcessState{
		Spec: p.spec, Log: p.log.State(), Sandbox: p.sandbox, WindowSize: p.windowSize, Screen: p.terminal.screenState(), Resizes: p.Resizes(0),
		State: p.state, Exit: p.exit, StartedAt: p.startedAt.Round(0),
		Silence: time.Since(p.LastOutput()),
		Cause:   p.cause, Killed: p.killed, KillingRest: p.killingRest, Released: p.released,
	}
	if p.spec.Timeout > 0 { // startedAt of a restored process is off by steps of the wall clock
		state.Timeout = time.Until(p.timeouts.ends)
	}
	if p.killJob != nil {
		state.Kill = p.killJob.state()
	}
	if p.leader.pidfd.Control(func(uintptr) {}) == nil { // it is open
		state.Pidfd = p.leader.file
	}
	if p.wrapper != nil {
		state.Init = p.wrapper.init.ID()
	}
	if p.cgroup != nil && !p.released {
		state.Cgroup, state.CgroupDirty = p.cgroup.State()
	}
	for _, s := range p.streams {
		if !s.hasEnded() {
			state.Streams = append(state.Streams, s.state())
		}
	}
	if p.stdin != nil {
		state.Stdin = p.stdin.state()
	}
	return state
}

func (s *stream) state() StreamState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return StreamState{
		Stream: s.id, File: s.file, HadOutput: s.hadOutput, WindowFull: s.windowFull, PipeEnlarged: s.pipeEnlarged, LeaderExited: s.leaderExited,
		Settled: s.settled, Pending: s.pending, Draining: s.draining,
	}
}

func (in *stdin) state() *StdinState {
	in.mu.Lock()
	defer in.mu.Unlock()
	state := &StdinState{Queue: slices.Clone(in.queue), EndRequested: in.endRequested, Closed: in.closed, Accepted: in.accepted}
	if !in.closed && !in.terminal {
		state.File = in.file
	}
	return state
}

// state is called with rootTable.mu held.
func (j *killJob) state() *KillState {
	return &KillState{
		Forced: j.forced, Deadline: time.Until(j.deadline), GroupSentTerm: j.groupSentTerm,
		SentTerm: slices.Collect(maps.Keys(j.sentTerm)), Method: j.result.method,
	}
}

// stateOf is called with mu held.
func (t *rootTable) stateOf(root *trackedRoot, descendants []procfs.ID) RootState {
	_, tracked := t.roots[root]
	return RootState{
		PID: root.pid, Forked: root.forked, Cgroup: root.cgroup, Streams: root.streams, Tracked: tracked,
		Reaped: root.state.reaped, SessionEmpty: root.state.sessionEmpty, Ending: root.state.ending,
		LeftRunning: root.state.leftRunning, VerifiedGone: root.verifiedGone, Descendants: descendants,
	}
}

// Restore returns a Supervisor that goes on with the processes of state, and these in its order. It
// owns the files of the state. The pool of control groups in config is that of the state, as
// cgroup.Restore returned it, and the sandboxes are those of this program. Until Restore returns, the rest of the program must not reap children.
// An error means that the state cannot be used; what it has then is lost.
//
// In the program of the state, Restore takes the place of Thaw, and the frozen Supervisor must not be
// used any more.
func Restore(config Config, state *SupervisorState) (*Supervisor, []*Process, error) {
	s := makeSupervisor(config)
	s.confinedPeers.mayConnect.Store(state.ConfinedMayConnect)
	s.confinedPeers.ungrouped.Store(state.ConfinedUngrouped)
	if len(state.Placeholders) > 0 {
		if config.Sandboxes == nil {
			return nil, nil, errors.New("failed to restore confined processes: no sandboxes are configured")
		}
		if err := config.Sandboxes.Restore(state.Placeholders); err != nil {
			return nil, nil, err
		}
	}
	processes := make([]*Process, len(state.Processes))
	for i := range state.Processes {
		var err error
		if processes[i], err = s.restoreProcess(&state.Processes[i]); err != nil {
			return nil, nil, fmt.Errorf("failed to restore process %d: %w", state.Processes[i].Root.PID, err)
		}
	}
	tracker.restore(processes, state)
	s.adopt()
	for i, p := range processes {
		s.startRestored(p, &state.Processes[i])
	}
	tracker.thaw()
	return s, processes, nil
}

// Recover returns a process that a program before this one has started and that has closed. Nothing
// is known of it but what is given, with the last size of its terminal in spec: there is no screen, and
// whether it left descendants is not verified.
func (s *Supervisor) Recover(spec Spec, pid int, startedAt time.Time, exit ExitRecord, log *eventlog.State) (*Process, error) {
	state := &ProcessState{
		Root: RootState{PID: pid, Reaped: true, SessionEmpty: true, Ending: true},
		Spec: spec, Log: log, State: StateClosed, Exit: exit, StartedAt: startedAt, Killed: true, Released: true,
	}
	if spec.Terminal != nil {
		state.WindowSize = *spec.Terminal
	}
	return s.restoreProcess(state)
}

// hasTerminal reports whether something is known of the terminal of a process. Of one of [Supervisor.Recover]
// nothing is but its size, also after a later Freeze.
func (state *ProcessState) hasTerminal() bool {
	return state.Spec.Terminal != nil && (state.State != StateClosed || len(state.Resizes) > 0 || len(state.Screen) > 0)
}

// restoreProcess returns the Process without starting anything.
func (s *Supervisor) restoreProcess(saved *ProcessState) (*Process, error) {
	log, err := s.config.Files.Restore(saved.Log)
	if err != nil {
		return nil, err
	}
	c := child{pid: saved.Root.PID, pidfd: saved.Pidfd}
	if saved.Cgroup != "" {
		if c.cgroup, err = s.config.Cgroups.Restored(saved.Cgroup, saved.CgroupDirty); err != nil {
			return nil, err
		}
	}
	closed, err := closedFile()
	if err != nil {
		return nil, err
	}
	if len(saved.Placeholders) > 0 {
		if c.sandbox, err = s.config.Sandboxes.Use(saved.Placeholders); err != nil {
			return nil, err
		}
	}
	if c.pidfd == nil {
		c.pidfd = closed
	} else if err := c.pidfd.SetDeadline(noDeadline); err != nil {
		return nil, fmt.Errorf("its pidfd cannot be polled: %w", err)
	}
	now := time.Now()
	p := s.makeProcess(saved.Spec, c, saved.Root.restore(), log)
	p.startedAt = now.Add(saved.StartedAt.Sub(now)) // with a monotonic clock
	p.lastOutput.Store(int64(now.Add(-saved.Silence).Sub(p.startedAt)))
	p.sandbox, p.windowSize, p.observed = saved.Sandbox, saved.WindowSize, true
	if saved.Sandbox != nil && saved.Sandbox.ExitByCode {
		p.wrapper = &wrapper{leader: p.leader, init: procfs.Stat{PID: saved.Init.PID, Start: saved.Init.Start}}
	}
	p.leader.reaped.Store(saved.Root.Reaped)
	p.state, p.exit, p.cause = saved.State, saved.Exit, saved.Cause
	p.killed, p.killingRest, p.released = saved.Killed, saved.KillingRest, saved.Released
	p.exitedLogged = log.Stats().Exited
	if err := p.restoreFiles(saved, closed); err != nil {
		return nil, err
	}
	if p.state >= StateExited {
		close(p.exited)
		close(p.settled)
	}
	if p.state == StateClosed {
		p.setClosed(nil)
	}
	return p, nil
}

// restoreFiles restores the streams and the input. Those that have ended get the closed file.
func (p *Process) restoreFiles(saved *ProcessState, closed *os.File) error {
	input := closed
	for _, of := range saved.Streams {
		if err := of.File.SetDeadline(noDeadline); err != nil {
			return fmt.Errorf("its %v cannot be polled: %w", of.Stream, err)
		}
		s := p.addStream(of.File, of.Stream)
		if of.Settled {
			p.unsettledStreams--
		}
		s.hadOutput, s.windowFull, s.pipeEnlarged, s.leaderExited = of.HadOutput, of.WindowFull, of.PipeEnlarged, of.LeaderExited
		s.settled, s.pending, s.draining = of.Settled, of.Pending, of.Draining
		if s.terminal {
			input = of.File
		}
	}
	if saved.hasTerminal() {
		p.terminal = &terminal{master: input, size: p.windowSize, resizes: saved.Resizes}
		if err := p.restoreScreen(saved.Screen); err != nil {
			return err
		}
	}
	if saved.Stdin == nil {
		return nil
	}
	if saved.Stdin.File != nil {
		input = saved.Stdin.File
		if err := input.SetDeadline(noDeadline); err != nil {
			return fmt.Errorf("its stdin cannot be polled: %w", err)
		}
	}
	in := p.supervisor.newStdin(input, p.terminal != nil)
	in.queue, in.endRequested, in.closed, in.accepted = saved.Stdin.Queue, saved.Stdin.EndRequested, saved.Stdin.Closed, saved.Stdin.Accepted
	for _, chunk := range in.queue {
		in.queued += len(chunk)
	}
	in.draining = !in.closed && (in.queued > 0 || in.endRequested)
	p.stdin = in
	return nil
}

// closedFile returns a file that is closed.
func closedFile() (*os.File, error) {
	file, err := os.Open(os.DevNull)
	if err == nil {
		err = file.Close()
	}
	return file, err
}

// startRestored starts the timers and goroutines of a restored process, and goes on with its kill.
func (s *Supervisor) startRestored(p *Process, saved *ProcessState) {
	if p.released {
		return
	}
	s.addProcess(p)
	p.mu.Lock()
	if p.state < StateClosed {
		p.timeouts.start(p, saved.Timeout)
	}
	if saved.Kill != nil {
		job := &killJob{forced: saved.Kill.Forced, deadline: time.Now().Add(saved.Kill.Deadline), groupSentTerm: saved.Kill.GroupSentTerm}
		job.result.method = saved.Kill.Method
		job.sentTerm = map[procfs.ID]bool{}
		for _, id := range saved.Kill.SentTerm {
			job.sentTerm[id] = true
		}
		tracker.beginKillJob(p, job)
	}
	p.mu.Unlock()
	p.resume()
}

// restore returns the root.
func (state RootState) restore() *trackedRoot {
	return &trackedRoot{
		pid: state.PID, forked: state.Forked, cgroup: state.Cgroup, streams: state.Streams, verifiedGone: state.VerifiedGone,
		state: rootState{reaped: state.Reaped, sessionEmpty: state.SessionEmpty, ending: state.Ending, leftRunning: state.LeftRunning},
	}
}

// restore adds processes and roots, in place of those of this program from which the state was taken.
// Nothing is scanned before thaw.
func (t *processTracker) restore(processes []*Process, state *SupervisorState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.frozen = true
	restored := map[procfs.ID]bool{}
	for _, p := range processes {
		restored[p.root.id()] = true
	}
	for _, root := range state.Forgotten {
		restored[root.restore().id()] = true
	}
	for root := range t.roots {
		if restored[root.id()] {
			delete(t.roots, root)
			if root.state.leftRunning {
				t.leftRunning--
			}
		}
	}
	maps.DeleteFunc(t.jobs, func(job *killJob, _ struct{}) bool { return restored[job.process.root.id()] })
	last := &attribution{owners: map[procfs.ID]*trackedRoot{}}
	if t.lastScan != nil {
		maps.Copy(last.owners, t.lastScan.owners)
	}
	t.lastScan = last
	for i, p := range processes {
		saved := state.Processes[i].Root
		if !saved.Reaped {
			t.leaders[saved.PID] = true
		}
		if p.released {
			t.addRoot(p.root, nil, saved)
		} else {
			t.addRoot(p.root, p, saved)
		}
	}
	for _, saved := range state.Forgotten {
		t.addRoot(saved.restore(), nil, saved)
	}
	t.scheduleOrphanCheck(0) // signals about children may have been lost
}

// addRoot adds a restored root; p is nil if the process was forgotten. Called with mu held.
func (t *processTracker) addRoot(root *trackedRoot, p *Process, saved RootState) {
	if !saved.Tracked {
		return
	}
	t.roots[root] = p
	if p == nil || saved.LeftRunning {
		root.state.detachedAtScan = t.scansBegun + 1
	}
	if saved.LeftRunning {
		t.leftRunning++
	}
	for _, id := range saved.Descendants {
		t.lastScan.owners[id] = root
	}
}

// id identifies the leader, whether it is alive or not.
func (r *trackedRoot) id() procfs.ID { return procfs.ID{PID: r.pid, Start: r.forked} }
