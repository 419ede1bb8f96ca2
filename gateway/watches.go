package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

// maxWatchIDBytes is the longest id of a watch, as JSON.
const maxWatchIDBytes = 128

// watchID is how a client calls a watch: a string or an unsigned number, as JSON.
type watchID string

// parseWatchID reads a part of a message.
func parseWatchID(raw json.RawMessage) (watchID, *jsonrpc.Error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) > maxWatchIDBytes {
		return "", watchIDRefused("watchId must be at most " + strconv.Itoa(maxWatchIDBytes) + " bytes")
	}
	if n, err := strconv.ParseUint(string(raw), 10, 64); err == nil {
		return watchID(strconv.AppendUint(nil, n, 10)), nil
	}
	var text *string
	if err := json.Unmarshal(raw, &text); err != nil || text == nil {
		return "", watchIDRefused("invalid type: watchId is a string or an unsigned number")
	}
	return watchID(jsonrpc.AppendString(nil, *text)), nil
}

func watchIDRefused(message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: message, Data: jsonrpc.InvalidField{Reason: "INVALID_FIELD", Field: "watchId"}}
}

// watches are what a connection watches, of directories and of missing paths. They
// end with it.
type watches struct {
	limit int
	order fileOrder // of calls on the same watch

	mu   sync.Mutex
	byID map[watchID]*watch // guarded by mu

	streams int // guarded by mu; watches that are streams of the core
}

// watch is one of them.
type watch struct {
	id     watchID
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed when nothing more is said of it
}

// watchCall is a call that names a watch.
type watchCall interface {
	call
	watchID() watchID
}

// reserve takes the id for a watch that is to begin.
func (w *watches) reserve(id watchID) (*watch, *jsonrpc.Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.byID[id] != nil:
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "watch %s already exists", id)
	case w.isFull():
		return nil, w.full()
	case w.byID == nil:
		w.byID = make(map[watchID]*watch)
	}
	new := &watch{id: id, ended: make(chan struct{})}
	w.byID[id] = new
	return new, nil
}

// isFull is whether there may be no more. mu is held.
func (w *watches) isFull() bool { return len(w.byID)+w.streams >= w.limit }

func (w *watches) full() *jsonrpc.Error {
	return limitReached("watches_per_connection", w.limit, "watches are there")
}

// enterStream takes the place of a watch for a stream of the core, until leave is
// called; calls but the first do nothing.
func (w *watches) enterStream() (leave func(), failed *jsonrpc.Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isFull() {
		return nil, w.full()
	}
	w.streams++
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.streams--
	}), nil
}

func (w *watches) find(id watchID) *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byID[id]
}

// forget gives the id back. Calls but the first do nothing.
func (w *watches) forget(old *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byID[old.id] == old {
		delete(w.byID, old.id)
	}
}

// begin asks the core to watch, and waits until it does.
func begin[M any](ctx context.Context, c *connection, id watchID, open func(context.Context) (grpc.ServerStreamingClient[M], error), follow func(context.Context, *watch, grpc.ServerStreamingClient[M])) (any, *jsonrpc.Error) {
	w, failed := c.watches.reserve(id)
	if failed != nil {
		return nil, failed
	}
	ctx, w.cancel = context.WithCancelCause(ctx)
	stream, err := open(ctx)
	if err == nil {
		_, err = stream.Recv() // that it has begun
	}
	if err != nil {
		w.cancel(nil)
		c.watches.forget(w)
		return nil, watchFailure(err)
	}
	return &watchBegun{Watching: true, then: func() {
		c.spawn(func() {
			defer close(w.ended)
			defer c.watches.forget(w)
			defer w.cancel(nil)
			follow(ctx, w, stream)
		})
	}}, nil
}

// watchBegun is the result of fs/watch and fs/watchMissing. What there is to tell
// follows it.
type watchBegun struct {
	Watching bool `json:"watching"`

	then func() // nil if nothing is watched
}

func (b *watchBegun) wasSaid() {
	if b.then != nil {
		b.then()
	}
}

// sayNotification says one notification. It blocks while the client does not
// read.
func (c *connection) sayNotification(method string, params any) {
	c.sayOnce(func(dst []byte) []byte { return jsonrpc.AppendNotification(dst, method, params) })
}

// sayLast says the last notification about a watch. Its id is free from then on
// and not before: fs/unwatch waits for a watch that it finds.
func (c *connection) sayLast(w *watch, method string, params any) {
	c.sayOnce(func(dst []byte) []byte {
		c.watches.forget(w)
		return jsonrpc.AppendNotification(dst, method, params)
	})
}

// sayOnce says one message, which is appended when it is its turn.
func (c *connection) sayOnce(appendTo func(dst []byte) []byte) {
	said := false
	err := c.out.say(func(dst []byte) ([]byte, bool) {
		if said {
			return nil, false
		}
		said = true
		return appendTo(dst), true
	})
	if err != nil {
		c.end(ending{closeInternal, "a notification could not be sent", err})
	}
}

// fsUnwatchParams are the parameters of fs/unwatch.
type fsUnwatchParams struct {
	WatchID json.RawMessage `param:"watchId"`

	id watchID
}

func (p *fsUnwatchParams) check() (err *jsonrpc.Error) {
	p.id, err = parseWatchID(takeRaw(&p.WatchID))
	return err
}

func (p *fsUnwatchParams) watchID() watchID { return p.id }

var errUnwatched = errors.New("the client does not watch any more")

// run answers when nothing more is said of the watch.
func (p *fsUnwatchParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	w := r.watches.find(p.id)
	if w == nil {
		return nothing{}, nil
	}
	w.cancel(errUnwatched)
	select {
	case <-w.ended:
		return nothing{}, nil
	case <-ctx.Done():
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternal, "the connection is being closed")
	}
}
