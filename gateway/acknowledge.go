package gateway

import (
	"context"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

// acknowledgements are what initialize tells a client that says by itself what it
// has taken: how much of a process may be unacknowledged before it blocks.
type acknowledgements struct {
	WindowBytes  uint64 `json:"windowBytes"`
	WindowEvents uint64 `json:"windowEvents"`
}

// acknowledgements returns what the client asked for, nil for one that did not.
func (c *connection) acknowledgements() *acknowledgements {
	if !c.acknowledges {
		return nil
	}
	return &acknowledgements{WindowBytes: c.session.windowBytes, WindowEvents: c.session.windowEvents}
}

// acknowledgeParams are the parameters of process/acknowledge.
type acknowledgeParams struct {
	ProcessID string `param:"processId"`
	Seq       uint64 `param:"seq"`
}

func (p *acknowledgeParams) order() (string, place) { return p.ProcessID, placeAny }

// run notes that the client has everything up to the seq, as far as it was told of
// it, and tells the core. Of a process that is gone there is nothing to be told.
func (p *acknowledgeParams) run(_ context.Context, r *request) (any, *jsonrpc.Error) {
	if !r.acknowledges {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "client must ask for acknowledgements in initialize before using process/acknowledge")
	}
	r.mu.Lock()
	known := r.records[coreProcessID(p.ProcessID)]
	var news []acknowledgement
	if known != nil {
		known.claim(p.Seq)
		news = known.appendNews(nil)
	}
	r.mu.Unlock()
	r.session.acknowledge(news)
	if known != nil {
		r.mu.Lock()
		r.forget(known)
		r.mu.Unlock()
	}
	return struct{}{}, nil
}
