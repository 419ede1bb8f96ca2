package execserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

// peer is what a server said of itself in the handshake.
type peer struct {
	// execwire is whether it has the methods and members beyond the reference.
	execwire bool
	// acknowledges is whether it keeps what was not acknowledged by
	// process/acknowledge, and tells of processes exactly.
	acknowledges bool
	// windowBytes and windowEvents are how much may be unacknowledged of a process
	// then.
	windowBytes, windowEvents uint64
	// coreRequests is whether it takes requests in the words of the contract, and
	// tells its errors in them.
	coreRequests bool
	// environment is its environmentInfo, nil if it did not tell.
	environment json.RawMessage
	// uris is whether paths are written as file: URIs.
	uris bool
	// name is how messages call it.
	name string
	// instance is which run of the server it is, empty if it did not tell.
	instance string
}

// knowsWrites reports whether a write that is repeated is known by its id.
func (p peer) knowsWrites() bool { return p.environment != nil }

type initializeParams struct {
	ClientName       string  `json:"clientName"`
	ResumeSessionID  *string `json:"resumeSessionId,omitempty"`
	Acknowledgements bool    `json:"acknowledgements"`
	CoreRequests     bool    `json:"coreRequests"`
}

type initializeResult struct {
	SessionID        string          `param:"sessionId,optional,nullable"`
	ProtocolVersion  string          `param:"protocolVersion,optional,nullable"`
	InstanceID       string          `param:"instanceId,optional,nullable"`
	EnvironmentInfo  json.RawMessage `param:"environmentInfo,optional"`
	Acknowledgements *struct {
		WindowBytes  uint64 `param:"windowBytes"`
		WindowEvents uint64 `param:"windowEvents"`
	} `param:"acknowledgements,optional"`
	CoreRequests *bool `param:"coreRequests"`
}

// errConnectTime is why an attempt to connect is given up.
var errConnectTime = errors.New("the server did not answer in time")

// connect opens a connection and shakes hands: for the first session, or for the
// one that there is. The link is the caller's to finish.
func (c *Conn) connect(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.options.Timeout, errConnectTime)
	defer cancel()
	transport, err := c.options.Open(ctx)
	if err != nil {
		return nil, err
	}
	l := newLink(c, transport)
	if err := l.shakeHands(ctx, c.sessionID()); err != nil {
		if command, ok := transport.(*launched); ok {
			err = command.explain(err)
		}
		l.finish(closeGoingAway, "", err)
		return nil, err
	}
	return l, nil
}

// shakeHands makes the link ready for calls.
func (l *link) shakeHands(ctx context.Context, resume string) error {
	params := initializeParams{ClientName: l.conn.options.ClientName, Acknowledgements: true, CoreRequests: true}
	if resume != "" {
		params.ResumeSessionID = &resume
	}
	var result initializeResult
	if err := l.ask(ctx, "initialize", params, &result); err != nil {
		return fmt.Errorf("the handshake failed: %w", err)
	}
	if resume != "" && result.SessionID != resume {
		return protocolErrorf("it resumed the session %q instead of %q", result.SessionID, resume)
	}
	l.session = result.SessionID
	l.peer = peer{environment: result.EnvironmentInfo, name: l.transport.Peer(), instance: result.InstanceID}
	if string(l.peer.environment) == "null" {
		l.peer.environment = nil
	}
	l.peer.execwire = result.ProtocolVersion != "" && result.SessionID != "" && l.peer.environment != nil
	if a := result.Acknowledgements; a != nil {
		l.peer.acknowledges, l.peer.windowBytes, l.peer.windowEvents = true, a.WindowBytes, a.WindowEvents
	}
	l.peer.coreRequests = result.CoreRequests != nil && *result.CoreRequests
	l.out.add(jsonrpc.AppendNotification(nil, "initialized", nil))
	return l.findPathForm(ctx)
}

// findPathForm decides how paths are written. A server that tells of its
// environment takes URIs; of one that does not a harmless question shows it.
func (l *link) findPathForm(ctx context.Context) error {
	switch {
	case l.conn.options.Paths != PathsAuto:
		l.peer.uris = l.conn.options.Paths == PathsURI
		return nil
	case l.peer.environment != nil:
		l.peer.uris = true
		return nil
	}
	var failed *jsonrpc.Error
	err := l.ask(ctx, "fs/getMetadata", map[string]string{"path": "file:///"}, nil)
	if err != nil && !errors.As(err, &failed) {
		return fmt.Errorf("the handshake failed: %w", err)
	}
	l.peer.uris = failed == nil || failed.Code != jsonrpc.CodeInvalidParams
	return nil
}

// ask is a call in the handshake. Its error is a [*jsonrpc.Error] if the server
// answered with one.
func (l *link) ask(ctx context.Context, method string, params, result any) error {
	raw, err := l.call(ctx, method, params, func() {})
	if err != nil {
		var answered *jsonrpc.Error
		switch {
		case errors.As(err, &answered):
			return answered
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case l.over.Err() != nil:
			return context.Cause(l.over)
		}
		return errors.New(status.Convert(err).Message())
	}
	if result == nil {
		return nil
	}
	if err := jsonrpc.DecodeParams(raw, result); err != nil {
		return protocolErrorf("the result of %s cannot be understood: %v", method, err)
	}
	return nil
}
