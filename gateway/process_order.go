package gateway

import (
	"github.com/execwire/execwire/gateway/files"
	"github.com/execwire/execwire/gateway/httpcalls"
)

// processCall is a call that names a process.
type processCall interface {
	ownCall
	// order returns the client's process id and the order of the call among those on
	// the process.
	order() (id processID, kind orderKind)
}

// orderKind orders the calls on one process.
type orderKind int

const (
	orderAny    orderKind = iota // after starts
	orderStart                   // after starts, before all later calls
	orderWrite                   // after starts and writes
	orderResize                  // after starts and resizes
)

// enqueue assigns the request its turn. Calls are in the order in which requests
// arrive.
func (c *connection) enqueue(r *request) {
	switch named := r.call.(type) {
	case processCall:
		c.table.enqueueProcess(r, named)
	case files.Call:
		c.files.Enqueue(&r.turn, named)
	case *httpcalls.Request:
		c.http.Enqueue(named)
	}
}

func (t *processTable) enqueueProcess(r *request, named processCall) {
	id, kind := named.order()
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.record(id.server())
	p.users++
	r.turn.OnEnd(func() { t.releaseProcess(p) })
	if kind == orderStart {
		r.turn.Follow(&p.starting)
		return
	}
	r.turn.After(p.starting)
	switch kind {
	case orderWrite:
		r.turn.Follow(&p.writing)
	case orderResize:
		r.turn.Follow(&p.resizing)
	}
}

func (t *processTable) releaseProcess(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.users--
	t.forget(p)
}
