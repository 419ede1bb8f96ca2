package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// maxHandles is how many files a connection may have open, as with the reference.
const maxHandles = 128

// fileHandles are the files that a connection has open. In the core they belong
// to the session, which another connection can resume: their ids there are those
// of the client with something before them that no other connection has. The zero
// value is ready.
type fileHandles struct {
	order fileOrder // of calls on the same handle

	mu     sync.Mutex
	prefix string                 // guarded by mu; of ids in the core
	byID   map[string]*fileHandle // guarded by mu; those that may be open in the core
}

type fileHandle struct{ id, coreID string }

// handleCall is a call that names a handle.
type handleCall interface {
	call
	// usesHandle returns the handle, and whether calls on it that come later must
	// not overtake the call, nor it those before.
	usesHandle() (id string, changes bool)
}

// reserve takes the id for a file that is to be opened.
func (h *fileHandles) reserve(id string) (*fileHandle, *jsonrpc.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.byID[id] != nil:
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "file handle `%s` already exists", shorten(id))
	case len(h.byID) >= maxHandles:
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "at most %d file handles may be open per connection", maxHandles)
	case h.byID == nil:
		h.prefix, h.byID = rand.Text()+"/", make(map[string]*fileHandle)
	}
	handle := &fileHandle{id: id, coreID: h.prefix + id}
	h.byID[id] = handle
	return handle, nil
}

func (h *fileHandles) find(id string) (*fileHandle, *jsonrpc.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if handle := h.byID[id]; handle != nil {
		return handle, nil
	}
	return nil, unknownHandle(id)
}

func unknownHandle(id string) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeNotFound, "unknown file handle `%s`", shorten(id))
}

// forget gives the id of a handle back that is closed in the core.
func (h *fileHandles) forget(handle *fileHandle) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byID[handle.id] == handle {
		delete(h.byID, handle.id)
	}
}

// failure is what the client is told when a call on a handle failed.
func (h *fileHandles) failure(handle *fileHandle, err error) *jsonrpc.Error {
	if reasonOf(err) == execwirev1.ErrorReason_ERROR_REASON_FILE_HANDLE_NOT_FOUND {
		h.forget(handle) // a read failed
		return unknownHandle(handle.id)
	}
	return fileFailure(err)
}

// errCloseTime ends the closing of what a connection has left open.
var errCloseTime = errors.New("the core did not close the files in time")

// closeHandles closes what the client has left open. If that fails, it is closed
// with the session.
func (c *connection) closeHandles() {
	c.handles.mu.Lock()
	left := c.handles.byID
	c.handles.byID = nil
	c.handles.mu.Unlock()
	if len(left) == 0 {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(c.ctx), closeSessionFor, errCloseTime)
	defer cancel()
	for _, handle := range left {
		_, err := c.fileSystem.CloseFile(ctx, &execwirev1.CloseFileRequest{SessionId: c.session.id, HandleId: handle.coreID})
		if ctx.Err() != nil || err != nil && reasonOf(err) == execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND {
			return
		}
	}
}
