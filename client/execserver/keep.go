package execserver

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/execwire/execwire/gateway/jsonrpc"
	"github.com/execwire/execwire/internal/backoff"
)

// Codes with which a websocket is closed: a normal end, which ends the session too,
// and the end of a connection that another follows.
const (
	closeNormal    = 1000
	closeGoingAway = 1001
)

// keep replaces links that are lost until the connection is gone for good.
func (c *Conn) keep(l *link) {
	for {
		select {
		case <-l.lost():
		case <-c.ctx.Done():
			c.use(nil)
			l.finish(closeNormal, "", context.Cause(c.ctx))
			return
		}
		lost := context.Cause(l.over)
		c.noteLost(l, lost)
		c.use(nil)
		l.finish(closeGoingAway, "", lost)
		if l = c.reconnect(); l == nil {
			return
		}
		c.use(l)
		c.acknowledgeAgain()
	}
}

// noteLost ends the connection for good if the loss of a link that is in use means
// that. What is pending fails with that, so it comes first.
func (c *Conn) noteLost(l *link, err error) {
	c.mu.Lock()
	inUse := c.link == l
	c.mu.Unlock()
	if inUse && (c.options.Once || isProtocolError(err)) {
		c.lose(err)
	}
}

// lose ends the connection for good.
func (c *Conn) lose(err error) {
	peer := c.features()
	c.cancel(&LostError{Peer: peer.name, Restarted: isRestarted(peer.instance, err), Err: err})
}

// isRestarted reports whether err is the answer of another run of the server than the
// one with the instance id; an empty one is not known.
func isRestarted(instance string, err error) bool {
	var answered *jsonrpc.Error
	if instance == "" || !errors.As(err, &answered) {
		return false
	}
	var data struct {
		InstanceID string `json:"instance_id"`
	}
	raw, _ := answered.Data.(json.RawMessage)
	return json.Unmarshal(raw, &data) == nil && data.InstanceID != "" && data.InstanceID != instance
}

// reconnect makes a new link, nil if there will be none.
func (c *Conn) reconnect() *link {
	var wait backoff.Backoff
	for c.ctx.Err() == nil {
		l, err := c.connect(c.ctx)
		if err == nil {
			return l
		}
		if c.ctx.Err() != nil {
			break
		}
		if isFinal(err) {
			c.lose(err)
			break
		}
		c.attemptFailed(err)
		if !wait.Wait(c.ctx, 0) {
			break
		}
	}
	return nil
}

// isFinal reports whether the session cannot be resumed by another attempt.
func isFinal(err error) bool {
	var answered *jsonrpc.Error
	if !errors.As(err, &answered) {
		return isProtocolError(err)
	}
	switch {
	case answered.Code == jsonrpc.CodeSessionAttached, strings.Contains(answered.Message, "already attached"):
		return false // until the server has noticed that the connection before is gone
	case answered.Code == jsonrpc.CodeInternal, answered.Code == jsonrpc.CodeLimitReached:
		return false
	}
	return true
}
