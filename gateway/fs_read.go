package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const (
	// maxFileBytes is the largest file that fs/readFile returns, as with the
	// reference.
	maxFileBytes = 512 << 20
	// maxCoreMessage is the largest message that is taken from the core.
	maxCoreMessage = 64 << 20
	// maxEntries is the most entries that fs/readDirectory returns, as with the
	// reference.
	maxEntries = 50_000
)

type fsReadFileParams struct {
	Path    string          `param:"path"`
	Sandbox json.RawMessage `param:"sandbox,optional"`
	Policy  json.RawMessage `param:"sandboxPolicy,optional,named"`
	Follow  *bool           `param:"followSymlinks,optional"`

	path clientPath
	confinement
}

func (p *fsReadFileParams) check() *jsonrpc.Error {
	return checkFile(&p.path, "path", p.Path, &p.confinement, &p.Sandbox, &p.Policy)
}

func (p *fsReadFileParams) touches() ([]string, bool) { return []string{p.path.native}, false }

// run returns a small file as it is, and of a large one what streams it.
func (p *fsReadFileParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	leave, failed := r.bulk.enter(ctx)
	if failed != nil {
		return nil, failed
	}
	result, failed := p.read(ctx, r, leave)
	if failed != nil {
		leave()
	}
	return result, failed
}

// read is run; leave is for the result to call.
func (p *fsReadFileParams) read(ctx context.Context, r *request, leave func()) (any, *jsonrpc.Error) {
	noSymlinks, failed := r.noSymlinks(p.Follow)
	if failed != nil {
		return nil, failed
	}
	text, raw := p.path.forCore()
	resp, err := r.fileSystem.ReadFile(ctx, &execwirev1.ReadFileRequest{Path: text, RawPath: raw, NoSymlinks: noSymlinks, Sandbox: p.policy}, grpc.MaxCallRecvMsgSize(maxCoreMessage))
	switch {
	case err == nil && len(resp.GetData()) > r.contentLimit():
		return nil, fileTooLarge(r.contentLimit())
	case err == nil && len(resp.GetData()) > largeBytes:
		return &largeAnswer{begin: contentBegin, data: resp.GetData(), leave: leave}, nil
	case err == nil:
		return &wholeFile{data: resp.GetData(), leave: leave}, nil
	case reasonOf(err) != execwirev1.ErrorReason_ERROR_REASON_FILE_TOO_LARGE:
		return nil, contentFailure(err, p.path)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	file := &fileStream{cancel: cancel, leave: leave, limit: r.contentLimit()}
	if failed := file.open(ctx, r.fileSystem, p, noSymlinks); failed != nil {
		cancel(nil)
		return nil, failed
	}
	return file, nil
}

func fileTooLarge(limit int) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "file is too large to read: limit is %d bytes; read it in blocks with fs/open", limit)
}

// aroundContent is what of an answer may be beside content in base64, in bytes.
const aroundContent = 64 << 10

// contentLimit is how many bytes of content an answer may have: what the
// protocol allows, or less if the client cannot be sent as large a message.
func (c *connection) contentLimit() int {
	bounded, ok := c.conn.(jsonrpc.Bounded)
	if !ok {
		return maxFileBytes
	}
	return min(max(bounded.MessageLimit()-aroundContent, 0)/4*3, maxFileBytes)
}

// wholeFile is the result of fs/readFile of a small file.
type wholeFile struct {
	data  []byte
	leave func()
}

const (
	contentBegin = `{"dataBase64":`
	contentEnd   = `}`
)

func (f *wholeFile) appendTo(dst []byte) []byte {
	dst = append(dst, contentBegin...)
	dst = jsonrpc.AppendBase64(dst, f.data)
	return append(dst, contentEnd...)
}

func (f *wholeFile) wasSaid() { f.leave() }

// fileStream is the result of fs/readFile of a large file, that goes from the
// core to the client a piece at a time. A file that cannot be read to its end, or
// grows beyond the limit meanwhile, ends the connection: half of the answer has
// been said by then, and the protocol has no way to take it back.
type fileStream struct {
	stream grpc.ServerStreamingClient[execwirev1.DownloadFileResponse]
	first  []byte // of the file; what can fail at once has not failed
	cancel context.CancelCauseFunc
	leave  func()
	limit  int // in bytes
}

// handingBack promises a core in the same program that a message is not used any
// more when the next one is asked for, so that the core may use its memory again.
// To a connection over a wire it says nothing.
type handingBack struct{ grpc.EmptyCallOption }

// HandsBack is what the option is known by.
func (handingBack) HandsBack() {}

// open begins the download.
func (f *fileStream) open(ctx context.Context, files execwirev1.FileSystemServiceClient, p *fsReadFileParams, noSymlinks bool) *jsonrpc.Error {
	text, raw := p.path.forCore()
	length := uint64(f.limit + 1)
	stream, err := files.DownloadFile(ctx, &execwirev1.DownloadFileRequest{Path: text, RawPath: raw, Length: &length, NoSymlinks: noSymlinks, Sandbox: p.policy}, handingBack{})
	if err != nil {
		return contentFailure(err, p.path)
	}
	head, err := stream.Recv()
	if err != nil {
		return contentFailure(err, p.path)
	}
	if head.GetHead().GetMetadata().GetSize() > uint64(f.limit) {
		return fileTooLarge(f.limit)
	}
	first, err := stream.Recv()
	if err != nil && err != io.EOF {
		return contentFailure(err, p.path)
	}
	f.stream, f.first = stream, first.GetData()
	return nil
}

// errGrew ends the answer with a file that was small enough when it was opened.
var errGrew = errors.New("the file grew beyond the limit while it was read")

// streamTo writes the file as it comes.
func (f *fileStream) streamTo(w io.Writer) error {
	defer f.leave()
	defer f.cancel(nil)
	size, piece := 0, f.first
	return streamBase64(w, contentBegin, func() ([]byte, error) {
		if size == 0 {
			size = len(piece)
			return piece, nil
		}
		message, err := f.stream.Recv()
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("the file could not be read to its end: %w", err)
		}
		if size += len(message.GetData()); size > f.limit {
			return nil, errGrew
		}
		return message.GetData(), nil
	})
}

type fsReadDirectoryParams struct {
	Path    string          `param:"path"`
	Sandbox json.RawMessage `param:"sandbox,optional"`
	Policy  json.RawMessage `param:"sandboxPolicy,optional,named"`

	path clientPath
	confinement
}

// fsEntries is the result of fs/readDirectory.
type fsEntries struct {
	Entries []fsEntry `json:"entries"`

	leave func()
}

func (e *fsEntries) wasSaid() { e.leave() }

// fsEntry is an entry. Of a name that is not UTF-8, FileName has the text that the
// reference says, and FileNameBase64 the bytes.
type fsEntry struct {
	FileName    string `json:"fileName"`
	IsDirectory bool   `json:"isDirectory"`
	IsFile      bool   `json:"isFile"`

	FileNameBase64 string `json:"fileNameBase64,omitempty"`
}

func (p *fsReadDirectoryParams) check() *jsonrpc.Error {
	return checkFile(&p.path, "path", p.Path, &p.confinement, &p.Sandbox, &p.Policy)
}

func (p *fsReadDirectoryParams) touches() ([]string, bool) { return []string{p.path.native}, false }

// fileName is the name of an entry as clients know it.
func fileName(e *execwirev1.DirectoryEntry) string {
	if raw := e.GetRawName(); len(raw) > 0 {
		return lossy(string(raw))
	}
	return e.GetName()
}

// run leaves out what leads to nothing, as the reference does.
func (p *fsReadDirectoryParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	leave, failed := r.bulk.enter(ctx)
	if failed != nil {
		return nil, failed
	}
	result := &fsEntries{Entries: []fsEntry{}, leave: leave}
	if failed := p.list(ctx, r, result); failed != nil {
		leave()
		return nil, failed
	}
	return result, nil
}

func (p *fsReadDirectoryParams) list(ctx context.Context, r *request, into *fsEntries) *jsonrpc.Error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	text, raw := p.path.forCore()
	stream, err := r.fileSystem.ReadDirectory(ctx, &execwirev1.ReadDirectoryRequest{Path: text, RawPath: raw, Sandbox: p.policy})
	if err != nil {
		return fileFailure(err)
	}
	for {
		message, err := stream.Recv()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return fileFailure(err)
		}
		for _, e := range message.GetEntries() {
			if e.GetTargetType() == execwirev1.FileType_FILE_TYPE_UNSPECIFIED {
				continue
			}
			if len(into.Entries) == maxEntries {
				return jsonrpc.Errorf(jsonrpc.CodeLimitReached, "directory has too many entries to list: limit is %d", maxEntries)
			}
			into.Entries = append(into.Entries, fsEntry{
				FileName:    fileName(e),
				IsDirectory: e.GetTargetType() == execwirev1.FileType_FILE_TYPE_DIRECTORY,
				IsFile:      e.GetTargetType() == execwirev1.FileType_FILE_TYPE_REGULAR,

				FileNameBase64: base64.StdEncoding.EncodeToString(e.GetRawName()),
			})
		}
	}
}
