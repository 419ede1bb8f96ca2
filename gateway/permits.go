package gateway

import (
	"strconv"
	"sync"

	"github.com/execwire/execwire/gateway/jsonrpc"
	"github.com/execwire/execwire/internal/wsconn"
)

// permits bound the requests of one connection that are in flight.
type permits struct {
	requests, control, incoming int           // the limits
	share                       *wsconn.Share // what inBytes takes of that of all connections

	mu          sync.Mutex
	inRequests  int           // guarded by mu
	inControl   int           // guarded by mu; beside them
	inBytes     int           // guarded by mu; of the messages of all
	unanswered  int           // guarded by mu; requests whose answers were not said
	allAnswered chan struct{} // guarded by mu; closed when there are none
}

// smallRequest is a message, in bytes, that never has to wait for the memory of
// others if it has a permit of its own.
const smallRequest = 16 << 10

// permit lets one request be in flight.
type permit struct {
	control bool // one of those for control
	bytes   int
}

func (p *permits) limits(config Config, share *wsconn.Share) {
	p.requests, p.control, p.incoming = config.Requests, config.ControlRequests, config.Incoming
	p.share = share
}

// enter takes a permit, or says which limit was reached. A request for control has
// one of its own when there is no other: some of them wait, as the closing of a
// file does for what was asked of it before. It never blocks.
func (p *permits) enter(control bool, bytes int) (permit, *jsonrpc.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	small, full := control && bytes <= smallRequest, p.inRequests >= p.requests
	switch {
	case full && control && p.inControl >= p.control:
		return permit{}, limitReached("control_requests_per_connection", p.control, "requests that end, signal or ask are in flight")
	case full && !control:
		return permit{}, limitReached("requests_per_connection", p.requests, "requests are in flight")
	case p.inBytes > 0 && p.inBytes+bytes > p.incoming && !small:
		return permit{}, limitReached("incoming_bytes_per_connection", p.incoming, "bytes of requests are in flight")
	case !p.share.Hold(int64(p.inBytes+bytes)) && !small:
		return permit{}, budgetReached()
	}
	if full {
		p.inControl++
	} else {
		p.inRequests++
	}
	p.inBytes += bytes
	p.unanswered++
	return permit{control: full, bytes: bytes}, nil
}

// incomingTotal is the name of the limit of all connections together.
const incomingTotal = "incoming_bytes_total"

// budgetReached is the refusal of a message for which all connections together
// leave no space.
func budgetReached() *jsonrpc.Error {
	return &jsonrpc.Error{
		Code:    jsonrpc.CodeLimitReached,
		Message: "the requests of all connections take too much memory together: send it again later, or raise " + incomingTotal,
		Data:    map[string]any{"setting": incomingTotal, retryMember: retryWhenFull.Milliseconds()},
	}
}

// messageTooLarge is the refusal of a message, which is refused again.
func messageTooLarge(limit int, what string) *jsonrpc.Error {
	failed := limitReached("message_bytes", limit, what)
	failed.Data = map[string]any{"reason": "MESSAGE_TOO_LARGE", "setting": "message_bytes", "limit": limit}
	return failed
}

// limitReached is the refusal of what others of the same connection leave no space for.
func limitReached(setting string, limit int, what string) *jsonrpc.Error {
	return &jsonrpc.Error{
		Code:    jsonrpc.CodeLimitReached,
		Message: "too many " + what + " on this connection: at most " + strconv.Itoa(limit) + " may be (" + setting + ")",
		Data:    map[string]any{"setting": setting, "limit": limit, retryMember: retryWhenFull.Milliseconds()},
	}
}

// leave gives a permit back. That comes just before the answer is said: a client
// that has it may ask again at once.
func (p *permits) leave(held permit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if held.control {
		p.inControl--
	} else {
		p.inRequests--
	}
	p.inBytes -= held.bytes
	p.share.Hold(int64(p.inBytes)) // what was let in without has less than that
}

// answered notes that the answer to a request that had a permit was said.
func (p *permits) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unanswered--
	p.wake()
}

// wake tells who waits for the last answer. mu is held.
func (p *permits) wake() {
	if p.allAnswered != nil && p.unanswered == 0 {
		close(p.allAnswered)
		p.allAnswered = nil
	}
}

// drained returns a channel that is closed when everything is answered. It is
// called once, when nothing more enters.
func (p *permits) drained() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(chan struct{})
	p.allAnswered = all
	p.wake()
	return all
}
