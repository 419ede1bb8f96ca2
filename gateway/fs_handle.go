package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const (
	// maxHandleIDBytes is the longest id of a handle, as with the reference.
	maxHandleIDBytes = 32
	// maxBlockBytes is the largest block that is read or written, as with the
	// reference, and what the core takes.
	maxBlockBytes = 1 << 20
)

// notOpenForThat is what the operating system says of a handle that was opened for
// something else, which does not close it.
const notOpenForThat = "EBADF"

// openMode says what a file is opened for.
type openMode execwirev1.OpenMode

func (m *openMode) UnmarshalText(text []byte) error {
	switch string(text) {
	case "read":
		*m = openMode(execwirev1.OpenMode_OPEN_MODE_READ)
	case "replace":
		*m = openMode(execwirev1.OpenMode_OPEN_MODE_REPLACE)
	default:
		return jsonrpc.UnknownVariant(string(text), "read", "replace")
	}
	return nil
}

type fsOpenParams struct {
	HandleID string          `param:"handleId"`
	Path     string          `param:"path"`
	Mode     *openMode       `param:"mode,optional"`
	Sandbox  json.RawMessage `param:"sandbox,optional"`
	Policy   json.RawMessage `param:"sandboxPolicy,optional,named"`

	path clientPath
	confinement
}

// fsHandle is the result of fs/open.
type fsHandle struct {
	HandleID string `json:"handleId"`
}

func (p *fsOpenParams) check() *jsonrpc.Error {
	if err := checkFile(&p.path, "path", p.Path, &p.confinement, &p.Sandbox, &p.Policy); err != nil {
		return err
	}
	if len(p.HandleID) > maxHandleIDBytes {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "file handle id must be at most %d bytes", maxHandleIDBytes)
	}
	return nil
}

// mode is what the file is opened for.
func (p *fsOpenParams) mode() execwirev1.OpenMode {
	if p.Mode == nil {
		return execwirev1.OpenMode_OPEN_MODE_READ
	}
	return execwirev1.OpenMode(*p.Mode)
}

func (p *fsOpenParams) touches() ([]string, bool) {
	return []string{p.path.native}, p.mode() == execwirev1.OpenMode_OPEN_MODE_REPLACE
}

func (p *fsOpenParams) usesHandle() (string, bool) { return p.HandleID, true }

func (p *fsOpenParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	handle, failed := r.handles.reserve(p.HandleID)
	if failed != nil {
		return nil, failed
	}
	text, raw := p.path.forCore()
	_, err := r.fileSystem.OpenFile(ctx, &execwirev1.OpenFileRequest{
		Path: text, RawPath: raw, SessionId: r.session.id, HandleId: handle.coreID, Mode: p.mode(), Sandbox: p.policy})
	if err != nil {
		if ctx.Err() == nil { // or nobody knows, and it is closed with the connection
			r.handles.forget(handle)
		}
		return nil, contentFailure(err, p.path)
	}
	return fsHandle{HandleID: p.HandleID}, nil
}

type fsReadBlockParams struct {
	HandleID string `param:"handleId"`
	Offset   uint64 `param:"offset"`
	Len      uint64 `param:"len"`
}

func (p *fsReadBlockParams) check() *jsonrpc.Error { return checkBlock("read", p.Len) }

func (p *fsReadBlockParams) usesHandle() (string, bool) { return p.HandleID, false }

func (p *fsReadBlockParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	handle, failed := r.handles.find(p.HandleID)
	if failed != nil {
		return nil, failed
	}
	leave, failed := r.bulk.enter(ctx)
	if failed != nil {
		return nil, failed
	}
	memory := borrowBlock(p.Len)
	resp, err := r.fileSystem.ReadBlock(ctx, &execwirev1.ReadBlockRequest{
		SessionId: r.session.id, HandleId: handle.coreID, Offset: p.Offset, Length: uint32(p.Len)}, memory.lending())
	if err != nil {
		leave() // and the core may still be writing into the memory
		if errno := coreInfo(err).GetMetadata()["errno"]; errno != "" && errno != notOpenForThat {
			r.handles.forget(handle) // which the core has closed
		}
		return nil, r.handles.failure(handle, err)
	}
	done := func() {
		memory.giveBack()
		leave()
	}
	block := &fileBlock{data: resp.GetData(), eof: resp.GetEof(), leave: done}
	if len(block.data) > largeBytes {
		return &largeAnswer{begin: string(block.appendBegin(nil)), data: block.data, leave: done}, nil
	}
	return block, nil
}

// fileBlock is the result of fs/readBlock.
type fileBlock struct {
	data  []byte
	eof   bool
	leave func()
}

func (b *fileBlock) appendTo(dst []byte) []byte {
	return append(jsonrpc.AppendBase64(b.appendBegin(dst), b.data), '}')
}

// appendBegin appends what precedes the data.
func (b *fileBlock) appendBegin(dst []byte) []byte {
	dst = strconv.AppendBool(append(dst, `{"eof":`...), b.eof)
	return append(dst, `,"chunk":`...)
}

func (b *fileBlock) wasSaid() { b.leave() }

type fsWriteBlockParams struct {
	HandleID string         `param:"handleId"`
	Offset   uint64         `param:"offset"`
	Chunk    jsonrpc.Base64 `param:"chunk"`
}

func (p *fsWriteBlockParams) check() *jsonrpc.Error { return checkBlock("write", uint64(len(p.Chunk))) }

func (p *fsWriteBlockParams) usesHandle() (string, bool) { return p.HandleID, true }

func (p *fsWriteBlockParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	handle, failed := r.handles.find(p.HandleID)
	if failed != nil {
		return nil, failed
	}
	_, err := r.fileSystem.WriteBlock(ctx, &execwirev1.WriteBlockRequest{
		SessionId: r.session.id, HandleId: handle.coreID, Offset: p.Offset, Data: p.Chunk})
	if err != nil {
		return nil, r.handles.failure(handle, err)
	}
	return nothing{}, nil
}

func checkBlock(verb string, length uint64) *jsonrpc.Error {
	if length < 1 || length > maxBlockBytes {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest,
			Message: fmt.Sprintf("file %s block length must be between 1 and %d", verb, maxBlockBytes)}
	}
	return nil
}

type fsCloseParams struct {
	HandleID string `param:"handleId"`
}

func (p *fsCloseParams) usesHandle() (string, bool) { return p.HandleID, true }

// run closes the handle. That there is none is as good.
func (p *fsCloseParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	handle, unknown := r.handles.find(p.HandleID)
	if unknown != nil {
		return nothing{}, nil
	}
	_, err := r.fileSystem.CloseFile(ctx, &execwirev1.CloseFileRequest{SessionId: r.session.id, HandleId: handle.coreID})
	if err != nil && ctx.Err() != nil { // it is closed with the connection
		return nil, fileFailure(err)
	}
	r.handles.forget(handle)
	if err != nil {
		return nil, fileFailure(err)
	}
	return nothing{}, nil
}
