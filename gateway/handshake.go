package gateway

import (
	"context"

	"github.com/execwire/execwire/internal/jsonrpc"
)

// initializeParams is the parameters of initialize.
type initializeParams struct {
	ClientName      string  `param:"clientName"`
	ResumeSessionID *string `param:"resumeSessionId,optional"`
	// Notifications are the optional notifications that the client wants.
	Notifications *[]string `param:"notifications,named"`
}

// initializeResult is the result of initialize: the union of the members of all
// versions of the reference.
type initializeResult struct {
	SessionID       string           `json:"sessionId"`
	ProtocolVersion string           `json:"protocolVersion"`
	EnvironmentInfo *environmentInfo `json:"environmentInfo"`
	// InstanceID is the server's.
	InstanceID string `json:"instanceId,omitempty"`
	// Notifications are the requested notifications that will be sent; absent if the
	// client requested none.
	Notifications *[]string `json:"notifications,omitempty"`
}

// protocolVersion is for clients of the older dialect, which check it.
const protocolVersion = "exec-server.v0"

// initialize executes initialize on the receiving goroutine, because nothing may
// precede its result, and returns the answer.
func (c *connection) initialize(m jsonrpc.Message) []byte {
	var params initializeParams
	if err := jsonrpc.DecodeParams(m.Params, &params); err != nil {
		return appendRefusal(nil, m.ID, err)
	}
	if c.session != nil {
		return appendRefusal(nil, m.ID, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "initialize may only be sent once per connection"))
	}
	if err := c.open(traced(c.ctx, traceOf(m)), params.ResumeSessionID); err != nil {
		return appendRefusal(nil, m.ID, err)
	}
	return jsonrpc.AppendResult(nil, m.ID, initializeResult{
		SessionID: c.session.id, ProtocolVersion: protocolVersion, EnvironmentInfo: c.environment,
		InstanceID:    c.environment.native.GetInstanceId(),
		Notifications: c.subscribe(params.Notifications)})
}

// open attaches a session and starts its feed. The session lasts until ctx ends. A
// failure leaves no trace.
func (c *connection) open(ctx context.Context, resume *string) *jsonrpc.Error {
	soon, cancel := context.WithTimeoutCause(ctx, attachTimeout, errAttachTimeout)
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
	c.table.marks.window(s.windowBytes, s.windowEvents)
	c.session, c.environment = s, environment
	c.files.Open(s.id, environment.native.GetFeatures())
	c.http.Open(environment.native.GetLimits().GetMessageBytes())
	c.Spawn(func() { c.feed(s) })
	return nil
}

// maxSessionIDBytes is the server's limit.
const maxSessionIDBytes = 256

// dropRecords forgets the processes of a session whose attachment failed.
func (c *connection) dropRecords() {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	clear(c.table.records)
}
