package files

import (
	"context"
	"fmt"
	"sync"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/param"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/inproc"
	"github.com/execwire/execwire/internal/jsonrpc"
)

const (
	// maxHandleIDBytes is the limit of the reference.
	maxHandleIDBytes = 32
	// MaxBlockBytes is the largest block, in the reference and in the server.
	MaxBlockBytes = 1 << 20
)

// notOpenForThat is the error of a handle that is open in another mode. It does not
// close the handle.
const notOpenForThat = "EBADF"

// openMode is the mode of fs/open.
type openMode execwirev1.OpenMode

func (m *openMode) UnmarshalText(text []byte) error {
	return param.Variant((*execwirev1.OpenMode)(m), text, []string{"read", "replace"},
		execwirev1.OpenMode_OPEN_MODE_READ, execwirev1.OpenMode_OPEN_MODE_REPLACE)
}

type fsOpenParams struct {
	HandleID string     `param:"handleId"`
	Path     param.Path `param:"path"`
	Mode     *openMode  `param:"mode,optional"`
	confined
}

// fsHandle is the result of fs/open.
type fsHandle struct {
	HandleID string `json:"handleId"`
}

// Check implements [call.Checked].
func (p *fsOpenParams) Check() *jsonrpc.Error {
	if len(p.HandleID) > maxHandleIDBytes {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "file handle id must be at most %d bytes", maxHandleIDBytes)
	}
	return nil
}

func (p *fsOpenParams) mode() execwirev1.OpenMode {
	if p.Mode == nil {
		return execwirev1.OpenMode_OPEN_MODE_READ
	}
	return execwirev1.OpenMode(*p.Mode)
}

func (p *fsOpenParams) touches() ([]param.Path, bool) {
	return []param.Path{p.Path}, p.mode() == execwirev1.OpenMode_OPEN_MODE_REPLACE
}

func (p *fsOpenParams) usesHandle() (string, bool) { return p.HandleID, true }

func (p *fsOpenParams) run(ctx context.Context, s *Service) (any, *jsonrpc.Error) {
	handle, failed := s.handles.reserve(p.HandleID)
	if failed != nil {
		return nil, failed
	}
	text, raw := p.Path.ProtoPath()
	_, err := s.client.OpenFile(ctx, &execwirev1.OpenFileRequest{
		Path: text, RawPath: raw, SessionId: s.sessionID, HandleId: handle.serverID, Mode: p.mode(), Sandbox: p.policy})
	if err != nil {
		if ctx.Err() == nil { // otherwise the outcome is unknown, and the connection closes the file
			s.handles.forget(handle)
		}
		return nil, contentFailure(err, p.Path)
	}
	return fsHandle{HandleID: p.HandleID}, nil
}

type fsReadBlockParams struct {
	HandleID string `param:"handleId"`
	Offset   uint64 `param:"offset"`
	Len      uint64 `param:"len"`
}

func (p *fsReadBlockParams) Check() *jsonrpc.Error { return checkBlock("read", p.Len) }

func (p *fsReadBlockParams) usesHandle() (string, bool) { return p.HandleID, false }

func (p *fsReadBlockParams) run(ctx context.Context, s *Service) (any, *jsonrpc.Error) {
	handle, failed := s.handles.find(p.HandleID)
	if failed != nil {
		return nil, failed
	}
	release, failed := s.answers.Acquire(ctx)
	if failed != nil {
		return nil, failed
	}
	memory := getBlock(p.Len)
	resp, err := s.client.ReadBlock(ctx, &execwirev1.ReadBlockRequest{
		SessionId: s.sessionID, HandleId: handle.serverID, Offset: p.Offset, Length: uint32(p.Len)}, inproc.Lend{Memory: memory.bytes()})
	if err != nil {
		release() // the server may still write into the memory, so it is not reused
		if errno := errorinfo.Of(err).GetMetadata()["errno"]; errno != "" && errno != notOpenForThat {
			s.handles.forget(handle) // closed by the server
		}
		return nil, s.handles.failure(handle, err)
	}
	begin := fmt.Sprintf(`{"eof":%t,"chunk":`, resp.GetEof())
	return call.Data(begin, func() {
		memory.put()
		release()
	}, resp.GetData()), nil
}

type fsWriteBlockParams struct {
	HandleID string         `param:"handleId"`
	Offset   uint64         `param:"offset"`
	Chunk    jsonrpc.Base64 `param:"chunk"`
}

func (p *fsWriteBlockParams) Check() *jsonrpc.Error { return checkBlock("write", uint64(len(p.Chunk))) }

func (p *fsWriteBlockParams) usesHandle() (string, bool) { return p.HandleID, true }

func (p *fsWriteBlockParams) run(ctx context.Context, s *Service) (any, *jsonrpc.Error) {
	handle, failed := s.handles.find(p.HandleID)
	if failed != nil {
		return nil, failed
	}
	_, err := s.client.WriteBlock(ctx, &execwirev1.WriteBlockRequest{
		SessionId: s.sessionID, HandleId: handle.serverID, Offset: p.Offset, Data: p.Chunk})
	if err != nil {
		return nil, s.handles.failure(handle, err)
	}
	return nothing{}, nil
}

func checkBlock(verb string, length uint64) *jsonrpc.Error {
	if length < 1 || length > MaxBlockBytes {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "file %s block length must be between 1 and %d", verb, MaxBlockBytes)
	}
	return nil
}

type fsCloseParams struct {
	HandleID string `param:"handleId"`
}

func (p *fsCloseParams) usesHandle() (string, bool) { return p.HandleID, true }

// run closes the handle. An unknown handle is no error.
func (p *fsCloseParams) run(ctx context.Context, s *Service) (any, *jsonrpc.Error) {
	handle, unknown := s.handles.find(p.HandleID)
	if unknown != nil {
		return nothing{}, nil
	}
	_, err := s.client.CloseFile(ctx, &execwirev1.CloseFileRequest{SessionId: s.sessionID, HandleId: handle.serverID})
	if err != nil && ctx.Err() != nil { // the connection closes it
		return nil, fileError(err)
	}
	s.handles.forget(handle)
	return done(err)
}

// MinPooledBlock is the smallest block that is read into pooled memory.
const MinPooledBlock = 64 << 10

// block is memory for reading a block; nil is none.
type block [MaxBlockBytes]byte

var freeBlocks = sync.Pool{New: func() any { return new(block) }}

// getBlock returns memory for a block of length bytes. After a failed read the caller
// drops it.
func getBlock(length uint64) *block {
	if length < MinPooledBlock {
		return nil
	}
	return freeBlocks.Get().(*block)
}

// put makes the memory available to others.
func (b *block) put() {
	if b != nil {
		freeBlocks.Put(b)
	}
}

// bytes returns the memory of the block; nil of none.
func (b *block) bytes() []byte {
	if b == nil {
		return nil
	}
	return b[:]
}
