package gateway

import (
	"time"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// process is what a connection knows of one process: requests that are under
// way, events that wait, and how far the client is. All of it is guarded by
// connection.mu, except that id and name never change.
type process struct {
	id   string // of the core
	name []byte // of the client, as JSON

	users    int             // requests that name it
	starting <-chan struct{} // closed when the last start that came was carried out
	writing  <-chan struct{} // closed when the last write that came was carried out
	resizing <-chan struct{} // closed when the last resize that came was carried out

	holds   []*hold
	begun   uint64  // holds that there ever were
	pending []batch // received and not yet said
	saying  bool    // somebody says it

	gap     *execwirev1.OutputGap  // to be told with the next event
	manner  manner                 // of the process whose events are said
	renewed *manner                // of another that was started under the id; its events are to come
	closed  bool                   // its closed event was said
	exit    uint64                 // the seq of its exited event, 0 while not known
	ended   *execwirev1.ExitRecord // what that says

	closeWait *time.Timer // runs while an exit waits for the close to be said
	exitDue   bool        // the close is late: the exit is to be said
	exitSaid  bool        // in the older dialect, by who speaks of the process
	exitTold  bool        // the same, when the transport has it

	progress
}

// record finds the process with the core's id, or makes its record. mu is held.
func (c *connection) record(id string) *process {
	p := c.records[id]
	if p == nil {
		p = &process{id: id, name: jsonrpc.AppendString(nil, clientProcessID(id))}
		c.records[id] = p
	}
	return p
}

// forget drops a record that says nothing: nothing is under way, and the client
// has nothing yet or everything. mu is held.
func (c *connection) forget(p *process) {
	idle := p.users == 0 && len(p.holds) == 0 && len(p.pending) == 0 && !p.saying
	if idle && p.isSettled() && c.records[p.id] == p {
		delete(c.records, p.id)
	}
}

// isSettled reports whether there is nothing to be remembered of how far the
// client is.
func (p *process) isSettled() bool {
	hasAll := p.closed && p.acknowledged == p.received
	return p.missed <= p.received && p.hole == 0 && !p.isRenewedOtherwise() &&
		(p.received == 0 && p.manner == manner{} || hasAll)
}

// isRenewedOtherwise reports whether a process will speak under the id whose
// manner a new record would not have.
func (p *process) isRenewedOtherwise() bool {
	return p.renewed != nil && *p.renewed != manner{}
}
