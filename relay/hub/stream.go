package hub

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"

	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/relay"
	"github.com/execwire/execwire/relay/harness"
	"github.com/execwire/execwire/relay/rendezvous"
)

// openAudited opens a stream as openStream does, and records it as an action.
func (h *Hub) openAudited(ctx context.Context, router *rendezvous.Hub, action, principal, executor string) (net.Conn, error) {
	end, err := h.audit.Begin(nil, principal, &audit.Record{Action: action, Executor: executor})
	if err != nil {
		return nil, err
	}
	conn, err := openStream(ctx, router, principal, executor, h.logger)
	end(err)
	return conn, err
}

// openStream opens a stream to an executor for a principal. If the executor
// is connected to another node, it connects there as any harness does, with a URL of the
// principal. It blocks until the executor has acknowledged.
func openStream(ctx context.Context, router *rendezvous.Hub, principal, executor string, logger *slog.Logger) (net.Conn, error) {
	url, err := router.Elsewhere(ctx, principal, executor)
	if err != nil {
		return nil, err
	}
	if url == "" {
		return router.Open(ctx, principal, executor)
	}
	end, err := harness.Dial(ctx, harness.Options{URL: url, Relay: relay.Config{Streams: 1}, Logger: logger})
	if err != nil {
		return nil, refusalOf(err)
	}
	stream, err := end.Connect(ctx)
	if err != nil {
		return nil, errors.Join(err, end.Close())
	}
	return &remoteStream{Conn: stream, end: end}, nil
}

// refusalOf returns the refusal of another node for the client, as if this node had made it: a
// limit of the principal, or an executor that is away. An error of the nodes themselves is
// returned as it is: that the other does not know this one's signature, or is no hub.
func refusalOf(err error) error {
	refused, ok := errors.AsType[*harness.RefusedError](err)
	if !ok || refused.Code == "" || refused.Status == http.StatusUnauthorized {
		return err
	}
	return &rendezvous.Refusal{Status: refused.Status, Code: refused.Code, Message: refused.Text}
}

// remoteStream is a stream to an executor of another node, with a websocket of its own.
type remoteStream struct {
	net.Conn
	end *harness.Harness
}

// Close implements net.Conn.
func (s *remoteStream) Close() error { return errors.Join(s.Conn.Close(), s.end.Close()) }
