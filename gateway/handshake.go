package gateway

import (
	"context"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

// initializeParams are the parameters of initialize.
type initializeParams struct {
	ClientName      string  `param:"clientName"`
	ResumeSessionID *string `param:"resumeSessionId,optional"`
	// Notifications are those that clients get only if they ask for them.
	Notifications *[]string `param:"notifications,named"`
	// CoreRequests is whether the client asks in the words of the core, and is told
	// its errors in them.
	CoreRequests *bool `param:"coreRequests,named"`
	// Acknowledgements is whether the client says by itself what it has taken.
	Acknowledgements *bool `param:"acknowledgements,named"`
}

// initializeResult is what initialize answers: the members of every version of
// the reference.
type initializeResult struct {
	SessionID       string           `json:"sessionId"`
	ProtocolVersion string           `json:"protocolVersion"`
	EnvironmentInfo *environmentInfo `json:"environmentInfo"`
	// InstanceID is that of the core.
	InstanceID string `json:"instanceId,omitempty"`
	// Notifications are those of what the client asked for that will be sent,
	// absent for a client that did not ask.
	Notifications *[]string `json:"notifications,omitempty"`
	// CoreRequests is that of the parameters.
	CoreRequests bool `json:"coreRequests,omitempty"`
	// Acknowledgements are for a client that asked for them.
	Acknowledgements *acknowledgements `json:"acknowledgements,omitempty"`
}

// protocolVersion is for clients of the older dialect, which look for it.
const protocolVersion = "exec-server.v0"

// initialize carries out initialize on the receiving goroutine, because nothing
// may come before it is done, and returns the answer.
func (c *connection) initialize(m jsonrpc.Message) []byte {
	var params initializeParams
	if err := jsonrpc.DecodeParams(m.Params, &params); err != nil {
		return appendRefusal(nil, m.ID, err)
	}
	if c.session != nil {
		return appendRefusal(nil, m.ID, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "initialize may only be sent once per connection"))
	}
	if err := c.open(traced(c.ctx, traceOf(m)), params.ResumeSessionID, isSet(params.Acknowledgements)); err != nil {
		return appendRefusal(nil, m.ID, err)
	}
	c.asksCore = isSet(params.CoreRequests)
	return jsonrpc.AppendResult(nil, m.ID, initializeResult{
		SessionID: c.session.id, ProtocolVersion: protocolVersion, EnvironmentInfo: c.environment,
		InstanceID:    c.environment.native.GetInstanceId(),
		Notifications: c.subscribe(params.Notifications), CoreRequests: c.asksCore, Acknowledgements: c.acknowledgements()})
}

// open attaches the session that the client asked for, and begins to feed it.
// The session lasts until ctx ends. After a failure nothing is changed.
func (c *connection) open(ctx context.Context, resume *string, acknowledges bool) *jsonrpc.Error {
	soon, cancel := context.WithTimeoutCause(ctx, attachTime, errAttachTime)
	defer cancel()
	environment, err := c.getEnvironment(soon)
	if err != nil {
		return err
	}
	id := ""
	if resume != nil {
		if id = *resume; id == "" || len(id) > maxSessionIDBytes {
			return unknownSession(id)
		}
	}
	s, err := c.attach(ctx, id)
	if err != nil {
		c.dropRecords()
		return err
	}
	c.acknowledges = acknowledges
	c.marks.window(s.windowBytes, s.windowEvents)
	c.session, c.environment = s, environment
	c.spawn(func() { c.feed(s) })
	return nil
}

// maxSessionIDBytes is the longest id of a session that the core takes.
const maxSessionIDBytes = 256

// dropRecords forgets what was noted for a session that was not granted.
func (c *connection) dropRecords() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.records)
}
