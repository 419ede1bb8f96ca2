package gateway

import (
	"context"
	"errors"
	"log/slog"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// Timeouts of a shutdown.
const (
	// answerTimeout bounds the answers to earlier requests if the client may be gone:
	// a client that closes a websocket need not read what follows.
	answerTimeout = 2 * time.Second
	// stalledAnswerTimeout bounds the time without progress if the client still reads,
	// as one that closes the input of a program does.
	stalledAnswerTimeout = time.Minute
	// stallCheckInterval is the interval of checking for progress.
	stallCheckInterval = 250 * time.Millisecond
	// flushTimeout bounds the send of an error before a close.
	flushTimeout = 2 * time.Second
	// closeSessionTimeout bounds the time for the server to end the session.
	closeSessionTimeout = 30 * time.Second
)

// errClosedByClient is the cancellation cause of polls.
var errClosedByClient = errors.New("the client has ended the connection")

// shutDown ends the session after the client closed the connection normally. It answers
// earlier requests first, for a bounded time; polls are answered at once.
func (c *connection) shutDown() {
	c.closedByClient.Store(true)
	c.cancelPolls(errClosedByClient)
	c.awaitAnswers()
	c.flushOutgoing()
	c.cancelCalls(errServed)
	if c.session != nil && !c.session.takenOver.Load() {
		c.closeSession()
	}
}

// closeSession ends the session and its processes. If that fails, the session enters
// its grace period.
func (c *connection) closeSession() {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(c.ctx), closeSessionTimeout,
		errors.New("the server did not end the session in time"))
	defer cancel()
	_, err := c.sessions.CloseSession(ctx, &execwirev1.CloseSessionRequest{SessionId: c.session.id})
	if err != nil && errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND {
		c.log.Warn("failed to end the session of a client that has ended its connection",
			slog.String("session_id", c.session.id), slog.String("error", err.Error()))
	}
}

// inBackground runs f, and returns a channel that is closed when it has returned.
func (c *connection) inBackground(f func()) <-chan struct{} {
	done := make(chan struct{})
	c.Spawn(func() {
		defer close(done)
		f()
	})
	return done
}

// awaitAnswers waits until all requests are answered, the client is gone, or no answer
// makes progress. A client that may be gone has only a bounded time.
func (c *connection) awaitAnswers() {
	answered := c.inBackground(c.answering.Wait)
	tick := time.NewTicker(stallCheckInterval)
	defer tick.Stop()
	half, mayRead := c.conn.(jsonrpc.HalfCloser)
	timeout := answerTimeout
	if mayRead {
		timeout = stalledAnswerTimeout
	}
	sent, since := c.out.answered.Load(), time.Now()
	for {
		select {
		case <-answered:
			return
		case <-c.ctx.Done():
			return
		case now := <-tick.C:
			if latest := c.out.answered.Load(); mayRead && latest != sent {
				sent, since = latest, now
			}
			if now.Sub(since) >= timeout || mayRead && !half.Listens() {
				return
			}
		}
	}
}

// flushOutgoing sends what is queued, for a bounded time.
func (c *connection) flushOutgoing() {
	late := time.NewTimer(flushTimeout)
	defer late.Stop()
	select {
	case <-c.inBackground(c.out.flushBlocking):
	case <-late.C:
	}
}
