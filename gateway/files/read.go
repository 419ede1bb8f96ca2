package files

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/param"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/inproc"
	"github.com/execwire/execwire/internal/jsonrpc"
)

type fsReadFileParams struct {
	Path param.Path `param:"path"`
	confined
	following
}

func (p *fsReadFileParams) touches() ([]param.Path, bool) { return []param.Path{p.Path}, false }

func (p *fsReadFileParams) run(ctx context.Context, s *Service) (any, *jsonrpc.Error) {
	return s.answers.Prepare(ctx, func(release func()) (any, *jsonrpc.Error) { return p.read(ctx, s, release) })
}

// read returns the content of a small file, and a stream for a large one.
func (p *fsReadFileParams) read(ctx context.Context, s *Service, release func()) (any, *jsonrpc.Error) {
	text, raw := p.Path.ProtoPath()
	resp, err := s.client.ReadFile(ctx, &execwirev1.ReadFileRequest{Path: text, RawPath: raw, NoSymlinks: p.refusesLinks(), Sandbox: p.policy}, grpc.MaxCallRecvMsgSize(call.MaxServerMessage))
	limit := s.connection.ContentLimit()
	switch {
	case err == nil && len(resp.GetData()) > limit:
		return nil, fileTooLarge(limit)
	case err == nil:
		return call.Data(contentBegin, release, resp.GetData()), nil
	case errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_FILE_TOO_LARGE:
		return nil, contentFailure(err, p.Path)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	file := &fileStream{cancel: cancel, release: release, limit: limit}
	if failed := file.open(ctx, s.client, p); failed != nil {
		cancel(nil)
		return nil, failed
	}
	return file, nil
}

func fileTooLarge(limit int) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "file is too large to read: limit is %d bytes; read it in blocks with fs/open", limit)
}

// contentBegin precedes the content in the result of fs/readFile.
const contentBegin = `{"dataBase64":`

// fileStream is the result of fs/readFile for a large file, which is never whole in
// memory. If the file cannot be read to its end, or grows beyond the limit, the
// connection ends: a part of the answer was sent, and the protocol cannot take it back.
type fileStream struct {
	stream  grpc.ServerStreamingClient[execwirev1.DownloadFileResponse]
	first   []byte // received in advance, so that errors of opening become the answer
	cancel  context.CancelCauseFunc
	release func()
	limit   int // in bytes
}

// open starts the download.
func (f *fileStream) open(ctx context.Context, client execwirev1.FileSystemServiceClient, p *fsReadFileParams) *jsonrpc.Error {
	text, raw := p.Path.ProtoPath()
	length := uint64(f.limit + 1)
	stream, err := client.DownloadFile(ctx, &execwirev1.DownloadFileRequest{Path: text, RawPath: raw, Length: &length, NoSymlinks: p.refusesLinks(), Sandbox: p.policy}, inproc.HandBack{})
	if err != nil {
		return contentFailure(err, p.Path)
	}
	head, err := stream.Recv()
	if err != nil {
		return contentFailure(err, p.Path)
	}
	if head.GetHead().GetMetadata().GetSize() > uint64(f.limit) {
		return fileTooLarge(f.limit)
	}
	first, err := stream.Recv()
	if err != nil && err != io.EOF {
		return contentFailure(err, p.Path)
	}
	f.stream, f.first = stream, first.GetData()
	return nil
}

// errGrew ends an answer with a file that has grown beyond the limit.
var errGrew = errors.New("the file grew beyond the limit while it was read")

// StreamTo writes the file as it arrives.
func (f *fileStream) StreamTo(w io.Writer) error {
	defer f.release()
	defer f.cancel(nil)
	size, piece := 0, f.first
	return call.StreamBase64(w, contentBegin, func() ([]byte, error) {
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

// maxEntries is the largest number of entries that fs/readDirectory returns, as in the
// reference.
const maxEntries = 50_000

type fsReadDirectoryParams struct {
	Path param.Path `param:"path"`
	confined
}

// fsEntries is the result of fs/readDirectory.
type fsEntries struct {
	Entries []fsEntry `json:"entries"`

	release func()
}

func (e *fsEntries) Sent() { e.release() }

// fsEntry is an entry of a directory. If its name is not UTF-8, FileName has the
// reference's text and FileNameBase64 the bytes.
type fsEntry struct {
	FileName    string `json:"fileName"`
	IsDirectory bool   `json:"isDirectory"`
	IsFile      bool   `json:"isFile"`

	FileNameBase64 string `json:"fileNameBase64,omitempty"`
}

func (p *fsReadDirectoryParams) touches() ([]param.Path, bool) { return []param.Path{p.Path}, false }

// fileName returns the name for clients.
func fileName(e *execwirev1.DirectoryEntry) string {
	if raw := e.GetRawName(); len(raw) > 0 {
		return param.ToUTF8(string(raw))
	}
	return e.GetName()
}

func (p *fsReadDirectoryParams) run(ctx context.Context, s *Service) (any, *jsonrpc.Error) {
	return s.answers.Prepare(ctx, func(release func()) (any, *jsonrpc.Error) {
		result := &fsEntries{Entries: []fsEntry{}, release: release}
		return result, p.list(ctx, s, result)
	})
}

// list omits dangling links, as the reference does.
func (p *fsReadDirectoryParams) list(ctx context.Context, s *Service, into *fsEntries) *jsonrpc.Error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	text, raw := p.Path.ProtoPath()
	stream, err := s.client.ReadDirectory(ctx, &execwirev1.ReadDirectoryRequest{Path: text, RawPath: raw, Sandbox: p.policy})
	if err != nil {
		return fileError(err)
	}
	for {
		message, err := stream.Recv()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return fileError(err)
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
