package execserver

import (
	"context"
	"math"
	"sync"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const (
	// maxHandles is how many files a server of the reference has open for a
	// connection.
	maxHandles = 128
	// maxHandleBlock is the largest block.
	maxHandleBlock = 1 << 20
)

// fileHandles are the files that are open by names of our callers. The zero value is
// ready.
type fileHandles struct {
	mu   sync.Mutex
	byID map[string]*fileHandle // guarded by mu; nil values are being opened
}

// fileHandle is a file that is open over a link, and ends with it.
type fileHandle struct {
	link *link
	id   string
}

// reserve takes a name.
func (h *fileHandles) reserve(id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, handle := range h.byID {
		if handle != nil && handle.link.over.Err() != nil {
			delete(h.byID, name)
		}
	}
	_, taken := h.byID[id]
	switch {
	case taken:
		return failure(execwirev1.ErrorReason_ERROR_REASON_FILE_HANDLE_ALREADY_EXISTS, "file handle %q exists already: choose another id", id)
	case len(h.byID) >= maxHandles:
		return failure(execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FILE_HANDLES, "at most %d files can be open over a connection: close one", maxHandles)
	case h.byID == nil:
		h.byID = make(map[string]*fileHandle)
	}
	h.byID[id] = nil
	return nil
}

// set notes what a name stands for; nil gives it back.
func (h *fileHandles) set(id string, handle *fileHandle) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if handle == nil {
		delete(h.byID, id)
		return
	}
	h.byID[id] = handle
}

func (h *fileHandles) find(id string) (*fileHandle, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if handle := h.byID[id]; handle != nil && handle.link.over.Err() == nil {
		return handle, nil
	}
	return nil, failure(execwirev1.ErrorReason_ERROR_REASON_FILE_HANDLE_NOT_FOUND, "file handle %q does not exist: open the file again", id)
}

// OpenFile implements FileSystemServiceServer. Handles end with the connection.
func (s *fileService) OpenFile(ctx context.Context, request *execwirev1.OpenFileRequest) (*execwirev1.OpenFileResponse, error) {
	where, err := s.wire(ctx, request)
	if err != nil {
		return nil, err
	}
	modes := map[execwirev1.OpenMode]string{execwirev1.OpenMode_OPEN_MODE_READ: "read", execwirev1.OpenMode_OPEN_MODE_REPLACE: "replace"}
	mode, known := modes[request.GetMode()]
	switch {
	case !known:
		return nil, invalidField("mode", "is none that files are opened for: use OPEN_MODE_READ or OPEN_MODE_REPLACE")
	case len(request.GetHandleId()) < 1 || len(request.GetHandleId()) > 128:
		return nil, invalidField("handle_id", "has to have 1 to 128 bytes")
	case !s.isNewer():
		return nil, failure(execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED, "this server opens no files: read and write them as a whole")
	}
	l, err := s.conn.current(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.handles.reserve(request.GetHandleId()); err != nil {
		return nil, err
	}
	id, err := s.openOn(ctx, l, where, mode)
	if err != nil {
		s.handles.set(request.GetHandleId(), nil)
		return nil, s.contentError(ctx, where, err)
	}
	s.handles.set(request.GetHandleId(), &fileHandle{l, id})
	m, err := s.describe(ctx, where)
	if err != nil {
		s.handles.set(request.GetHandleId(), nil)
		s.closeOn(l, id)
		return nil, err
	}
	return &execwirev1.OpenFileResponse{Metadata: m}, nil
}

// ReadBlock implements FileSystemServiceServer.
func (s *fileService) ReadBlock(ctx context.Context, request *execwirev1.ReadBlockRequest) (*execwirev1.ReadBlockResponse, error) {
	switch {
	case request.GetOffset() > math.MaxInt64:
		return nil, invalidField("offset", "is more than any file has")
	case request.GetLength() < 1 || request.GetLength() > maxHandleBlock:
		return nil, invalidField("length", "has to be 1 to 1,048,576")
	}
	handle, err := s.handles.find(request.GetHandleId())
	if err != nil {
		return nil, err
	}
	var block readBlockResult
	params := readBlockParams{handle.id, request.GetOffset(), request.GetLength()}
	if err := s.conn.callOn(ctx, handle.link, s.conn.places, "fs/readBlock", params, &block); err != nil {
		return nil, err
	}
	return &execwirev1.ReadBlockResponse{Data: block.Chunk, Eof: block.EOF}, nil
}

// WriteBlock implements FileSystemServiceServer.
func (s *fileService) WriteBlock(ctx context.Context, request *execwirev1.WriteBlockRequest) (*execwirev1.WriteBlockResponse, error) {
	switch {
	case request.GetOffset() > math.MaxInt64:
		return nil, invalidField("offset", "is more than any file has")
	case len(request.GetData()) < 1 || len(request.GetData()) > maxHandleBlock:
		return nil, invalidField("data", "has to have 1 to 1,048,576 bytes")
	}
	handle, err := s.handles.find(request.GetHandleId())
	if err != nil {
		return nil, err
	}
	params := writeBlockParams{handle.id, request.GetOffset(), request.GetData()}
	return &execwirev1.WriteBlockResponse{}, s.conn.callOn(ctx, handle.link, s.conn.places, "fs/writeBlock", params, nil)
}

// CloseFile implements FileSystemServiceServer.
func (s *fileService) CloseFile(ctx context.Context, request *execwirev1.CloseFileRequest) (*execwirev1.CloseFileResponse, error) {
	handle, err := s.handles.find(request.GetHandleId())
	if err != nil {
		return &execwirev1.CloseFileResponse{}, nil // which is as good
	}
	s.handles.set(request.GetHandleId(), nil)
	return &execwirev1.CloseFileResponse{}, s.conn.callOn(ctx, handle.link, s.conn.spare, "fs/close", closeParams{handle.id}, nil)
}
