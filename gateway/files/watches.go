package files

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"sync"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/gateway/rpcerror"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// maxWatchIDBytes is the longest watch id, as JSON.
const maxWatchIDBytes = 128

// watchID is a client's id of a watch: a string or an unsigned number, as JSON.
type watchID string

// parseWatchID copies the id: raw aliases the message.
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
	return param.NewError(jsonrpc.CodeInvalidParams, "watchId", message)
}

// watches are the watches of a connection, and end with it.
type watches struct {
	limit int
	order call.Paths // of calls on the same watch

	mu   sync.Mutex
	byID map[watchID]*watch // guarded by mu
}

// watch is one watch.
type watch struct {
	id     watchID
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed after the last notification
}

// reserve reserves the id of a new watch.
func (w *watches) reserve(id watchID) (*watch, *jsonrpc.Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.byID[id] != nil:
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "watch %s already exists", id)
	case len(w.byID) >= w.limit:
		return nil, rpcerror.LimitReached("watches_per_connection", w.limit, "watches are there")
	case w.byID == nil:
		w.byID = make(map[watchID]*watch)
	}
	new := &watch{id: id, ended: make(chan struct{})}
	w.byID[id] = new
	return new, nil
}

func (w *watches) find(id watchID) *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byID[id]
}

// forget releases the id. Only the first call has an effect.
func (w *watches) forget(old *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byID[old.id] == old {
		delete(w.byID, old.id)
	}
}
