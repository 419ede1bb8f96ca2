package gateway

import (
	"sync"
	"time"

	"github.com/execwire/execwire/gateway/call"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/tracecontext"
)

// orderKind orders the calls on one process.
type orderKind int

const (
	orderAny    orderKind = iota // after starts
	orderStart                   // after starts, before all later calls
	orderWrite                   // after starts and writes
	orderResize                  // after starts and resizes
)

// processTable has the processes of a connection: requests in flight, pending events,
// and the client's position.
type processTable struct {
	mu      sync.Mutex
	records map[string]*process // guarded by mu; by server id
}

// record returns the record of a server's id, and creates it if necessary. mu is held.
func (t *processTable) record(id string) *process {
	p := t.records[id]
	if p == nil {
		p = &process{id: id, name: jsonrpc.AppendString(nil, string(clientProcessID(id)))}
		t.records[id] = p
	}
	return p
}

// forget deletes a record without information: nothing is in flight, and the client has
// nothing or everything. mu is held.
func (t *processTable) forget(p *process) {
	idle := p.users == 0 && len(p.gates) == 0 && len(p.pending) == 0 && !p.delivering
	if idle && p.isSettled() && t.records[p.id] == p {
		delete(t.records, p.id)
	}
}

// enqueue assigns a request on the process with this server id its turn.
func (t *processTable) enqueue(turn *call.Turn, id string, kind orderKind) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.record(id)
	p.users++
	turn.OnEnd(func() { t.release(p) })
	if kind == orderStart {
		turn.Follow(&p.starting)
		return
	}
	turn.After(p.starting)
	switch kind {
	case orderWrite:
		turn.Follow(&p.writing)
	case orderResize:
		turn.Follow(&p.resizing)
	}
}

// release ends a request on the process.
func (t *processTable) release(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.users--
	t.forget(p)
}

// renew expects another process under the id, beginning with seq 1, which a request of the
// trace has started.
func (t *processTable) renew(id string, m processMode, trace tracecontext.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.record(id)
	p.nextMode, p.nextTrace = &m, trace
}

// setMode sets the mode of the process whose first event arrives, unless it is known.
func (t *processTable) setMode(id string, m processMode) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch p := t.record(id); {
	case p.nextMode != nil:
	case p.closed:
		p.nextMode = &m
	case p.received == 0 && p.mode == (processMode{}): // otherwise resume set it
		p.mode = m
	}
}

// resume records the positions of processes of a resumed session.
func (t *processTable) resume(all []*execwirev1.Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, described := range all {
		last, m := described.GetLastSeq(), processModeOf(described)
		if isDone(described) || last == 0 && m == (processMode{}) {
			continue
		}
		p := t.record(described.GetProcessId())
		p.missed, p.backlog, p.mode = last, last, m
	}
}

// isDone reports whether the process has closed and the client has everything.
func isDone(described *execwirev1.Process) bool {
	return described.GetState() == execwirev1.ProcessState_PROCESS_STATE_CLOSED && !described.GetOwned()
}

// addGate creates a gate for the events of a process.
func (t *processTable) addGate(id string, endOnly bool, limit time.Duration) *eventGate {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.record(id)
	p.gatesCreated++
	g := &eventGate{process: p, number: p.gatesCreated, endOnly: endOnly, limit: limit}
	p.gates = append(p.gates, g)
	return g
}

// unlimit removes the time limits of gates.
func (t *processTable) unlimit(gates []*eventGate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range gates {
		g.timer.stop()
		g.limit = 0
	}
}

// clear forgets all processes.
func (t *processTable) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.records)
}
