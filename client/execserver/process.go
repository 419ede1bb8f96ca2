package execserver

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/notify"
)

// processService implements the calls about processes.
type processService struct {
	execwirev1.UnimplementedProcessServiceServer
	conn *Conn
}

// checkSession rejects any session but that of the connection.
func checkSession(l *link, id string) error {
	if id == "" || id == l.session {
		return nil
	}
	return failure(execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND,
		"session %.100q is not that of this connection, which has no other: leave it out, or reach the server over gRPC", id)
}

func processNotFound(id string) error {
	return failure(execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND, "unknown process id %.1024s", id)
}

// find returns the process that a request names, and the link for requests about it.
func (s *processService) find(ctx context.Context, r interface {
	GetSessionId() string
	GetProcessId() string
}) (*process, *link, error) {
	l, err := s.conn.current(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := checkSession(l, r.GetSessionId()); err != nil {
		return nil, nil, err
	}
	p := s.conn.processes.find(r.GetProcessId())
	if p == nil || !p.isStarted() {
		return nil, nil, processNotFound(r.GetProcessId())
	}
	return p, l, nil
}

// closedRetention is how long a process is kept that has closed or will not: longer than by
// servers, so that a repeated start is recognized.
const closedRetention = 90 * time.Second

// processTable has the processes of a session by id.
type processTable struct {
	mu   sync.Mutex
	byID map[string]*process // guarded by mu
}

func (t *processTable) find(id string) *process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// add adds p, unless there is a process with its id, and returns the one in the table.
func (t *processTable) add(p *process) *process {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, other := range t.byID {
		if other.isForgotten() {
			delete(t.byID, id)
		}
	}
	if known := t.byID[p.id]; known != nil {
		return known
	}
	if t.byID == nil {
		t.byID = make(map[string]*process)
	}
	t.byID[p.id] = p
	return p
}

func (t *processTable) remove(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[p.id] == p {
		delete(t.byID, p.id)
	}
}

// recover makes up for the notifications that were lost with the previous link.
func (t *processTable) recover(l *link) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.byID {
		p.startRecovery(l)
	}
}

// hasOwnedBeside reports whether a process other than p has an owner.
func (t *processTable) hasOwnedBeside(p *process) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, other := range t.byID {
		if other != p && other.isOwned() {
			return true
		}
	}
	return false
}

// process is the state of one process. It outlives links.
type process struct {
	conn        *Conn
	id          string
	request     []byte // the encoded request that started it
	hasTerminal bool
	hasStdin    bool                // a pipe
	starting    *semaphore.Weighted // acquired during a start

	mu        sync.Mutex
	changed   notify.Broadcast    // guarded by mu; of what follows
	described *execwirev1.Process // guarded by mu; what does not change
	attempted bool                // guarded by mu; a start was sent
	started   bool                // guarded by mu; a start was answered
	killed    bool                // guarded by mu; this program terminated it
	abandoned bool                // guarded by mu; its owner did not return within the grace period
	failed    error               // guarded by mu; why there will be no more events
	endedAt   time.Time           // guarded by mu; when it closed, failed or lost its last owner
	log       eventLog            // guarded by mu
	incoming  incoming            // guarded by mu
	stdin     stdin               // guarded by mu
	owner     *run                // guarded by mu
	owners    int                 // guarded by mu; how many there were
}

func (p *process) isStarted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started
}

func (p *process) isOwned() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.owner != nil
}

func (p *process) isForgotten() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	hasEnded := p.log.closed || p.failed != nil || p.abandoned && !p.started
	return hasEnded && p.owner == nil && time.Since(p.endedAt) > closedRetention
}

// append adds an event to the log. The exit precedes the close also if its place was lost
// with output. The caller holds mu.
func (p *process) append(event *execwirev1.ProcessEvent) {
	if event.GetClosed() != nil {
		p.endedAt = time.Now()
		if p.incoming.exit != nil {
			p.log.append(exitedEvent(p.incoming.exit))
		}
	}
	p.log.append(event)
	if p.abandoned {
		p.log.discard()
	}
	p.changed.Notify()
}

// setStarted records that the process runs.
func (p *process) setStarted(l *link, r *execwirev1.StartProcessRequest, sandboxed bool) {
	direct := r.GetCommand().GetDirect()
	described := &execwirev1.Process{
		SessionId: l.session, ProcessId: p.id, Labels: r.GetLabels(),
		Argv: direct.GetArgv(), WorkingDirectory: direct.GetWorkingDirectory(),
		HasTerminal: p.hasTerminal, TerminalSize: r.GetIo().GetTerminal().GetSize(), StartTime: timestamppb.Now(),
	}
	if p.hasTerminal && described.GetTerminalSize() == nil {
		described.TerminalSize = &execwirev1.TerminalSize{Rows: 24, Columns: 80}
	}
	if sandboxed {
		described.Sandbox = &execwirev1.SandboxReport{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.described, p.started = described, true
	p.changed.Notify()
}

// describe describes a started process.
func (p *process) describe() *execwirev1.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	described := proto.CloneOf(p.described)
	described.LastSeq, described.Exit, described.Owned = p.log.last, p.incoming.exit, p.owner != nil
	switch {
	case p.log.closed:
		described.State = execwirev1.ProcessState_PROCESS_STATE_CLOSED
	case p.incoming.exit != nil:
		described.State = execwirev1.ProcessState_PROCESS_STATE_EXITED
	default:
		described.State = execwirev1.ProcessState_PROCESS_STATE_RUNNING
	}
	return described
}

// await blocks until done, which is called with mu held, returns true.
func (p *process) await(ctx context.Context, l *link, done func() bool) error {
	for {
		p.mu.Lock()
		isDone, failed, changed := done(), p.failed, p.changed.Wait()
		p.mu.Unlock()
		switch {
		case isDone:
			return nil
		case failed != nil:
			return failed
		}
		if err := awaitChange(ctx, l, changed); err != nil {
			return err
		}
	}
}

// awaitChange blocks until changed is closed, and fails if ctx or the link ends first.
func awaitChange(ctx context.Context, l *link, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.lost():
		return l.status()
	}
}
