package gateway

import (
	"sync"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// process is a connection's record of one process: requests in flight, pending events
// and the client's position. processTable.mu guards it,
// except id and name, which never
// change.
type process struct {
	id   string // on the server
	name []byte // of the client, as JSON

	users    int             // requests that name it
	starting <-chan struct{} // closed when the last start is done
	writing  <-chan struct{} // closed when the last write is done
	resizing <-chan struct{} // closed when the last resize is done

	gates        []*eventGate
	gatesCreated uint64  // number of gates ever created
	pending      []batch // received and not yet sent
	delivering   bool    // a goroutine delivers

	gap      *execwirev1.OutputGap  // to be sent with the next event
	mode     processMode            // of the process whose events are sent
	nextMode *processMode           // of the next process with this id, whose events are not received yet
	closed   bool                   // its closed event was sent
	exit     uint64                 // seq of the exited event; 0 while unknown
	ended    *execwirev1.ExitRecord // of the exited event

	closeWait     *delayed // runs while an exit waits for the close
	exitDue       bool     // the close is late: send the exit
	exitSent      bool     // in the older dialect; of the delivering goroutine
	exitDelivered bool     // in the older dialect: the transport has accepted it

	progress
}

// processTable has the processes of a connection: requests in flight, events to
// deliver, and the client's position. It sends the events of each process in order.
type processTable struct {
	conn *connection

	mu           sync.Mutex
	records      map[string]*process // guarded by mu; by server id
	allDelivered chan struct{}       // guarded by mu; closed when everything received is delivered; nil without a waiter

	marks watermarks
}

// begin makes the table ready for use.
func (t *processTable) begin(c *connection) {
	t.conn = c
	t.records = make(map[string]*process)
	t.marks.begin(t)
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

// isSettled reports whether the client's position need not be remembered.
func (p *process) isSettled() bool {
	hasAll := p.closed && p.acknowledged == p.received
	return p.missed <= p.received && p.backlog == 0 && !p.hasOtherNextMode() &&
		(p.received == 0 && p.mode == processMode{} || hasAll)
}

// hasOtherNextMode reports whether the next process with this id has a mode that a new
// record would lack.
func (p *process) hasOtherNextMode() bool {
	return p.nextMode != nil && *p.nextMode != processMode{}
}
