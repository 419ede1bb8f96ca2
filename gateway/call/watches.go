package call

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/gateway/rpcerror"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// maxWatchIDBytes is the longest watch id, as JSON.
const maxWatchIDBytes = 128

// WatchID is a client's id of a watch: a string or an unsigned number, as JSON.
type WatchID string

// parseWatchID copies the id: raw aliases the message.
func parseWatchID(raw json.RawMessage) (WatchID, *jsonrpc.Error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) > maxWatchIDBytes {
		return "", watchIDRefused("watchId must be at most " + strconv.Itoa(maxWatchIDBytes) + " bytes")
	}
	if n, err := strconv.ParseUint(string(raw), 10, 64); err == nil {
		return WatchID(strconv.AppendUint(nil, n, 10)), nil
	}
	var text *string
	if err := json.Unmarshal(raw, &text); err != nil || text == nil {
		return "", watchIDRefused("invalid type: watchId is a string or an unsigned number")
	}
	return WatchID(jsonrpc.AppendString(nil, *text)), nil
}

func watchIDRefused(message string) *jsonrpc.Error {
	return param.NewError(jsonrpc.CodeInvalidParams, "watchId", message)
}

// OnWatch is embedded in the parameters of calls that name a watch.
type OnWatch struct {
	// RawWatchID is the id in the message. Check clears it.
	RawWatchID json.RawMessage `param:"watchId"`

	id WatchID
}

// Check implements [Checked].
func (p *OnWatch) Check() (err *jsonrpc.Error) {
	p.id, err = parseWatchID(param.Take(&p.RawWatchID))
	return err
}

// WatchID returns the id, after Check.
func (p *OnWatch) WatchID() WatchID { return p.id }

// WatchCall is a call that names a watch.
type WatchCall interface {
	// WatchID returns the id of the watch.
	WatchID() WatchID
}

// Watches are the watches of a connection, and end with it. All methods may be called
// concurrently.
type Watches struct {
	connection Connection
	limit      int
	order      Paths // of calls on the same watch

	mu   sync.Mutex
	byID map[WatchID]*Watch // guarded by mu
}

// NewWatches returns the watches of a connection, at most limit.
func NewWatches(connection Connection, limit int) *Watches {
	return &Watches{connection: connection, limit: limit, byID: make(map[WatchID]*Watch)}
}

// Watch is one watch.
type Watch struct {
	id     WatchID
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed after the last notification
}

// ID returns the id as a member of a notification.
func (w *Watch) ID() json.RawMessage { return json.RawMessage(w.id) }

// Enqueue orders a call after earlier ones on the same watch.
func (w *Watches) Enqueue(turn *Turn, c WatchCall) {
	w.order.Enqueue(turn, []string{string(c.WatchID())}, true)
}

// reserve reserves the id of a new watch.
func (w *Watches) reserve(id WatchID) (*Watch, *jsonrpc.Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.byID[id] != nil:
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "watch %s already exists", id)
	case len(w.byID) >= w.limit:
		return nil, rpcerror.LimitReached("watches_per_connection", w.limit, "watches are there")
	}
	new := &Watch{id: id, ended: make(chan struct{})}
	w.byID[id] = new
	return new, nil
}

func (w *Watches) find(id WatchID) *Watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byID[id]
}

// forget releases the id. Only the first call has an effect.
func (w *Watches) forget(old *Watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byID[old.id] == old {
		delete(w.byID, old.id)
	}
}

// Stream is the server's part of a watch.
type Stream[M any] struct {
	// Open makes the call.
	Open func(context.Context) (grpc.ServerStreamingClient[M], error)
	// Explain translates an error of the call before its first message.
	Explain func(error) *jsonrpc.Error
	// Follow sends notifications until the stream or its context ends.
	Follow func(context.Context, *Watch, grpc.ServerStreamingClient[M])
}

// StartWatch starts a watch and waits for the first message of its stream, which says that it is
// active. The stream is followed when the result was sent.
func StartWatch[M any](ctx context.Context, all *Watches, id WatchID, s Stream[M]) (*WatchStarted, *M, *jsonrpc.Error) {
	w, failed := all.reserve(id)
	if failed != nil {
		return nil, nil, failed
	}
	ctx, w.cancel = context.WithCancelCause(ctx)
	var first *M
	stream, err := s.Open(ctx)
	if err == nil {
		first, err = stream.Recv()
	}
	if err != nil {
		w.cancel(nil)
		all.forget(w)
		return nil, nil, s.Explain(err)
	}
	return &WatchStarted{Watching: true, follow: func() {
		all.connection.Spawn(func() {
			defer close(w.ended)
			defer all.forget(w)
			defer w.cancel(nil)
			s.Follow(ctx, w, stream)
		})
	}}, first, nil
}

// WatchStarted is the result of a call that starts a watch. Notifications follow it.
type WatchStarted struct {
	// Watching is false if there is nothing to watch.
	Watching bool `json:"watching"`

	follow func() // nil if nothing is watched
}

// Sent implements [SendObserver].
func (s *WatchStarted) Sent() {
	if s.follow != nil {
		s.follow()
	}
}

// Notify sends one notification. It blocks while the client does not read.
func (w *Watches) Notify(method string, params any) {
	_ = w.connection.Send(func(dst []byte) []byte { return jsonrpc.AppendNotification(dst, method, params) })
}

// NotifyLast sends the last notification of a watch and releases its id just before: End waits for
// a watch that it finds.
func (w *Watches) NotifyLast(of *Watch, method string, params any) {
	_ = w.connection.Send(func(dst []byte) []byte {
		w.forget(of)
		return jsonrpc.AppendNotification(dst, method, params)
	})
}

var errUnwatched = errors.New("the client does not watch any more")

// End ends a watch, if there is one, and returns after its last notification.
func (w *Watches) End(ctx context.Context, id WatchID) (any, *jsonrpc.Error) {
	if found := w.find(id); found != nil {
		found.cancel(errUnwatched)
		select {
		case <-found.ended:
		case <-ctx.Done():
			return nil, Closing()
		}
	}
	return struct{}{}, nil
}
