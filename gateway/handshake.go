package gateway

import (
	"context"
	"slices"

	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/tracecontext"
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
	err := jsonrpc.DecodeParams(m.Params, &params)
	if err == nil && c.session != nil {
		err = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "initialize may only be sent once per connection")
	}
	if err == nil {
		err = c.open(tracecontext.NewOutgoing(c.ctx, traceOf(m)), params.ResumeSessionID)
	}
	if err != nil {
		return jsonrpc.AppendError(nil, m.ID, err)
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
	native, failure := c.environments.GetEnvironment(soon, &execwirev1.GetEnvironmentRequest{})
	if failure != nil {
		return rpcerror.Of(failure)
	}
	id := ""
	if resume != nil {
		if id = *resume; id == "" || len(id) > maxSessionIDBytes {
			return unknownSession(id)
		}
	}
	s, err := c.attach(ctx, id)
	if err != nil {
		c.table.clear()
		return err
	}
	c.session, c.environment = s, newEnvironmentInfo(native)
	c.marks.open(s)
	c.files.Open(s.id, native.GetFeatures())
	c.http.Open(native.GetLimits().GetMessageBytes())
	c.Spawn(func() { c.feed(s) })
	return nil
}

// subscribe records the requested notifications and returns those that will be sent;
// nil for a client that requested none.
func (c *connection) subscribe(wanted *[]string) *[]string {
	if wanted == nil {
		return nil
	}
	c.subscribed = make([]string, 0, len(subscribable))
	for _, name := range subscribable {
		if slices.Contains(*wanted, name) {
			c.subscribed = append(c.subscribed, name)
		}
	}
	c.delivery.reportsLost = c.isSubscribed(notifyFailed)
	return &c.subscribed
}
