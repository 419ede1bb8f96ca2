package execserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// peer is what a server reported in the handshake.
type peer struct {
	// extended is whether it has process/closeStdin, process/resize, every signal,
	// graceful termination and terminals of any size, which the reference lacks.
	extended bool
	// environment is its environmentInfo; nil from older servers, which do not
	// recognize repeated writes either.
	environment json.RawMessage
	// uris is whether paths are file: URIs, as in the reference since June 2026. Such
	// servers also read files in blocks, resolve paths and sandbox processes.
	uris bool
	// name is for messages.
	name string
	// instance identifies the run of the server; it may be empty.
	instance string
}

type initializeParams struct {
	ClientName      string `json:"clientName"`
	ResumeSessionID string `json:"resumeSessionId,omitempty"`
}

type initializeResult struct {
	SessionID       string          `param:"sessionId,optional,nullable"`
	ProtocolVersion string          `param:"protocolVersion,optional,nullable"`
	InstanceID      string          `param:"instanceId,optional,nullable"`
	EnvironmentInfo json.RawMessage `param:"environmentInfo,optional"`
}

// errConnectTimeout is the cause of the end of an attempt to connect.
var errConnectTimeout = errors.New("the server did not answer in time")

// connect opens a connection, for a new session or for that of the last link. The
// caller finishes the link.
func (c *Conn) connect(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, errConnectTimeout)
	defer cancel()
	transport, err := c.options.Open(ctx)
	if err != nil {
		return nil, err
	}
	resume := ""
	if last := c.lastLink(); last != nil {
		resume = last.session
	}
	l := newLink(c, transport)
	if err := l.handshake(ctx, resume); err != nil {
		if command, ok := transport.(*launched); ok {
			err = command.explain(err)
		}
		l.finish(closeGoingAway, err)
		return nil, err
	}
	return l, nil
}

// handshake prepares the link for calls.
func (l *link) handshake(ctx context.Context, resume string) error {
	var result initializeResult
	params := initializeParams{ClientName: l.conn.options.ClientName, ResumeSessionID: resume}
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
	l.peer.extended = result.ProtocolVersion != "" && result.SessionID != "" && l.peer.environment != nil
	select {
	case l.out <- outMessage{data: jsonrpc.AppendNotification(nil, "initialized", nil)}:
	case <-l.lost():
	}
	if l.peer.uris = l.peer.environment != nil; l.peer.uris {
		return nil
	}
	// Of the servers that do not report their environment, only the older ones reject
	// this.
	err := l.ask(ctx, "fs/getMetadata", map[string]string{"path": "file:///"}, nil)
	answered, ok := err.(*jsonrpc.Error)
	if err != nil && !ok {
		return fmt.Errorf("the handshake failed: %w", err)
	}
	l.peer.uris = err == nil || answered.Code != jsonrpc.CodeInvalidParams
	return nil
}

// isFinal reports whether another attempt to resume the session is useless after err.
func isFinal(err error) bool {
	answered, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		return isProtocolError(err)
	}
	switch {
	case answered.Code == jsonrpc.CodeSessionAttached, strings.Contains(answered.Message, "already attached"):
		return false // until the server notices that the previous connection is lost
	case answered.Code == jsonrpc.CodeInternal, answered.Code == jsonrpc.CodeLimitReached:
		return false
	}
	return true
}

// isRestarted reports whether err is an answer of another run of the server than the
// given one, which may be empty for unknown.
func isRestarted(instance string, err error) bool {
	answered, ok := errors.AsType[*jsonrpc.Error](err)
	if instance == "" || !ok {
		return false
	}
	other := errorinfo.Of(statusOf("initialize", answered)).GetMetadata()["instance_id"]
	return other != "" && other != instance
}
