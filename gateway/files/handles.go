package files

import (
	"crypto/rand"
	"sync"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/param"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// maxHandles is the largest number of open files of a connection, as in the reference.
const maxHandles = 128

// handles are the open files of a connection. On the server they belong to the
// session, which another connection can resume; therefore their ids there have a prefix
// that is unique to this connection. The zero value is ready.
type handles struct {
	order call.Paths // of calls on the same handle

	mu     sync.Mutex
	prefix string             // guarded by mu; of ids on the server
	byID   map[string]*handle // guarded by mu; handles that may be open on the server
}

type handle struct{ id, serverID string }

// reserve reserves the id of a file to open.
func (h *handles) reserve(id string) (*handle, *jsonrpc.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.byID[id] != nil:
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "file handle `%s` already exists", param.Shorten(id))
	case len(h.byID) >= maxHandles:
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "at most %d file handles may be open per connection", maxHandles)
	case h.byID == nil:
		h.prefix, h.byID = rand.Text()+"/", make(map[string]*handle)
	}
	new := &handle{id: id, serverID: h.prefix + id}
	h.byID[id] = new
	return new, nil
}

func (h *handles) find(id string) (*handle, *jsonrpc.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known := h.byID[id]; known != nil {
		return known, nil
	}
	return nil, unknownHandle(id)
}

func unknownHandle(id string) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeNotFound, "unknown file handle `%s`", param.Shorten(id))
}

// forget releases the id of a closed handle.
func (h *handles) forget(old *handle) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byID[old.id] == old {
		delete(h.byID, old.id)
	}
}

// failure converts an error of a call on a handle.
func (h *handles) failure(of *handle, err error) *jsonrpc.Error {
	if errorinfo.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_FILE_HANDLE_NOT_FOUND {
		h.forget(of) // a failed read closes it
		return unknownHandle(of.id)
	}
	return fileError(err)
}

// takeAll returns the open files and forgets them.
func (h *handles) takeAll() map[string]*handle {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.byID
	h.byID = nil
	return all
}
