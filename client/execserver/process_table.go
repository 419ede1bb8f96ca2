package execserver

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// forgetAfter is how long a process that has closed is known: longer than servers
// remember it, so that a start that is repeated is known for one.
const forgetAfter = 90 * time.Second

// processTable are the processes of a connection's session, by their ids.
type processTable struct {
	conn *Conn

	mu   sync.Mutex
	byID map[string]*process // guarded by mu
}

// put returns the process with the id, a new one if there is none.
func (t *processTable) put(id string, digest [sha256.Size]byte, hasTerminal bool) (p *process, isNew bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget()
	if p := t.byID[id]; p != nil {
		return p, false
	}
	p = newProcess(t.conn, id)
	p.digest, p.hasTerminal = digest, hasTerminal
	if t.byID == nil {
		t.byID = make(map[string]*process)
	}
	t.byID[id] = p
	return p, true
}

// find returns the process with the id, nil if it is not known.
func (t *processTable) find(id string) *process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// all returns the processes.
func (t *processTable) all() []*process {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*process, 0, len(t.byID))
	for _, p := range t.byID {
		all = append(all, p)
	}
	return all
}

// drop forgets a process that there is not.
func (t *processTable) drop(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[p.id] == p {
		delete(t.byID, p.id)
	}
}

// forget forgets what servers have forgotten. mu is held.
func (t *processTable) forget() {
	for id, p := range t.byID {
		if p.isOld(time.Now()) {
			delete(t.byID, id)
		}
	}
}

// process is what a connection knows of one process.
type process struct {
	conn   *Conn
	id     string
	digest [sha256.Size]byte // of the request that started it
	starts chan struct{}     // has a token while nobody is starting it
	stdin  stdinState

	hasTerminal bool

	mu        sync.Mutex
	tried     bool                   // guarded by mu; a start was sent
	runs      bool                   // guarded by mu; a start was answered
	described *execwirev1.Process    // guarded by mu; what does not change
	exit      *execwirev1.ExitRecord // guarded by mu; nil while not known
	last      uint64                 // guarded by mu; the highest seq that was heard of
	closed    bool                   // guarded by mu
	closedAt  time.Time              // guarded by mu; when that was learned

	feeds   []*feed       // guarded by mu; its readers
	owner   *feed         // guarded by mu; who owns it, nil for nobody
	waiting chan struct{} // guarded by mu; while it waits for an owner to come back, closed when one has
	changed chan struct{} // guarded by mu; closed when it said something, or its end is known
	pipe    bool          // guarded by mu; its stdin is a pipe
	killed  bool          // guarded by mu; this end asked for its termination
	marks   []mark        // guarded by mu; the last ones
	acks    acknowledging // guarded by mu
}

func newProcess(c *Conn, id string) *process {
	p := &process{conn: c, id: id, starts: make(chan struct{}, 1), changed: make(chan struct{})}
	p.stdin.begin()
	p.starts <- struct{}{}
	return p
}

// enterStart waits until nobody else is starting the process.
func (p *process) enterStart(ctx context.Context) error {
	select {
	case <-p.starts:
		return nil
	case <-ctx.Done():
		return contextStatus(ctx)
	}
}

func (p *process) leaveStart() { p.starts <- struct{}{} }

func (p *process) isStarted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs
}

// prepare notes what is known of a process before it is started.
func (p *process) prepare(sessionID string, r *execwirev1.StartProcessRequest) {
	direct, prepared := r.GetCommand().GetDirect(), r.GetCommand().GetPrepared()
	described := &execwirev1.Process{
		SessionId: sessionID, ProcessId: p.id, Labels: r.GetLabels(),
		Argv:             append(direct.GetArgv(), prepared.GetArgv()...),
		WorkingDirectory: direct.GetWorkingDirectory() + prepared.GetWorkingDirectory(),
		HasTerminal:      p.hasTerminal,
		TerminalSize:     r.GetIo().GetTerminal().GetSize(),
	}
	if described.GetHasTerminal() && described.GetTerminalSize() == nil {
		described.TerminalSize = &execwirev1.TerminalSize{Rows: 24, Columns: 80}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.described = described
	p.pipe = r.GetIo().GetPipes().GetStdin() == execwirev1.StdinMode_STDIN_MODE_PIPE
}

// attempted notes that a start is sent, and reports whether one was before.
func (p *process) attempted() (before bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, p.tried = p.tried, true
	return before
}

// started notes that the process runs.
func (p *process) started(confined bool, said *startResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs = true
	p.described.StartTime = timestamppb.Now()
	if said.StartedAtMs != nil {
		p.described.StartTime = timestamppb.New(time.UnixMilli(*said.StartedAtMs))
	}
	if said.PID != nil {
		p.described.Pid = *said.PID
	}
	if confined {
		p.described.Sandbox = &execwirev1.SandboxReport{}
	}
}

// describe describes the process as far as it is known here.
func (p *process) describe() *execwirev1.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	described := proto.CloneOf(p.described)
	described.LastSeq, described.Exit = p.last, p.exit
	described.Owned = p.owner != nil
	switch {
	case p.closed:
		described.State = execwirev1.ProcessState_PROCESS_STATE_CLOSED
	case p.exit != nil:
		described.State = execwirev1.ProcessState_PROCESS_STATE_EXITED
	case p.runs:
		described.State = execwirev1.ProcessState_PROCESS_STATE_RUNNING
	default:
		described.State = execwirev1.ProcessState_PROCESS_STATE_STARTING
	}
	return described
}

// isOld reports whether no server remembers the process.
func (p *process) isOld(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed && now.Sub(p.closedAt) > forgetAfter
}
