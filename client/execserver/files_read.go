package execserver

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"math"
	"slices"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const (
	// blockBytes is how much of a file is read or written by one request, in bytes.
	blockBytes = 512 << 10
	// messageBytes is the data in a message of a download, in bytes.
	messageBytes = 64 << 10
	// maxListed is how many entries are in a message.
	maxListed = 1000
)

// versionOf tells two states of a file apart as far as its metadata does.
func versionOf(m *execwirev1.FileMetadata) string {
	return fmt.Sprintf("%d.%09d-%d", m.GetModifyTime().GetSeconds(), m.GetModifyTime().GetNanos(), m.GetSize())
}

// GetMetadata implements FileSystemServiceServer. Permission bits are supposed, and
// where a link leads is not known.
func (s *fileService) GetMetadata(ctx context.Context, request *execwirev1.GetMetadataRequest) (*execwirev1.GetMetadataResponse, error) {
	where, err := s.wire(ctx, request)
	if err != nil {
		return nil, err
	}
	m, err := s.describe(ctx, where)
	if err != nil {
		return nil, err
	}
	if request.GetNoFollow() && m.GetIsSymlink() {
		m.Type, m.Size = execwirev1.FileType_FILE_TYPE_SYMLINK, 0
		return &execwirev1.GetMetadataResponse{Metadata: m}, nil
	}
	response := &execwirev1.GetMetadataResponse{Metadata: m}
	if request.GetWantSha256() && m.GetType() == execwirev1.FileType_FILE_TYPE_REGULAR {
		digest := sha256.New()
		if err := s.readThrough(ctx, where, 0, math.MaxInt64, digestOnly{digest}); err != nil {
			return nil, err
		}
		after, err := s.describe(ctx, where)
		if err != nil {
			return nil, err
		}
		if after.GetVersion() != m.GetVersion() {
			return nil, failure(execwirev1.ErrorReason_ERROR_REASON_FILE_CHANGED, "the file was changed while it was read")
		}
		response.Sha256 = digest.Sum(nil)
	}
	return response, nil
}

// taker takes the content of a file in pieces.
type taker interface{ take(data []byte) error }

type digestOnly struct{ hash.Hash }

func (d digestOnly) take(data []byte) error {
	d.Write(data)
	return nil
}

// ReadFile implements FileSystemServiceServer.
func (s *fileService) ReadFile(ctx context.Context, request *execwirev1.ReadFileRequest) (*execwirev1.ReadFileResponse, error) {
	where, err := s.wire(ctx, request)
	if err != nil {
		return nil, err
	}
	data, err := s.readWhole(ctx, where)
	if err != nil {
		return nil, err
	}
	m, err := s.describe(ctx, where)
	return &execwirev1.ReadFileResponse{Data: data, Metadata: m}, err
}

func (s *fileService) readWhole(ctx context.Context, where wireWhere) ([]byte, error) {
	var result struct {
		Data jsonrpc.Base64 `param:"dataBase64"`
	}
	if err := s.ask(ctx, "fs/readFile", where, where, &result); err != nil {
		return nil, s.contentError(ctx, where, err)
	}
	return result.Data, nil
}

// contentError tells directories from other things that have no content, which the
// reference calls by one name.
func (s *fileService) contentError(ctx context.Context, where wireWhere, err error) error {
	if reasonOf(err) != execwirev1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE {
		return err
	}
	m, described := s.describe(ctx, where)
	if described == nil && m.GetType() == execwirev1.FileType_FILE_TYPE_DIRECTORY {
		return failure(execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY, "%s is a directory", where.native)
	}
	return err
}

type openParams struct {
	HandleID string `json:"handleId"`
	wireWhere
	Mode string `json:"mode,omitempty"`
}

type readBlockParams struct {
	HandleID string `json:"handleId"`
	Offset   uint64 `json:"offset"`
	Len      uint32 `json:"len"`
}

type closeParams struct {
	HandleID string `json:"handleId"`
}

type readBlockResult struct {
	Chunk jsonrpc.Base64 `param:"chunk"`
	EOF   bool           `param:"eof"`
}

// openOn opens a file over a link, and returns its handle there.
func (s *fileService) openOn(ctx context.Context, l *link, where wireWhere, mode string) (string, error) {
	id := rand.Text()
	err := about(where.native, s.conn.callOn(ctx, l, s.conn.places, "fs/open", openParams{id, where, mode}, nil))
	if err != nil && ctx.Err() != nil {
		s.closeOn(l, id) // it may have been opened
	}
	return id, err
}

// closeOn closes a handle. Nobody waits for the answer, and a link that is lost has no
// handle.
func (s *fileService) closeOn(l *link, id string) {
	_ = l.post(func(dst []byte, request jsonrpc.ID) []byte {
		return jsonrpc.AppendRequest(dst, request, "fs/close", closeParams{id})
	}, func([]byte, error) {})
}

// readThrough hands on what a file has from an offset on, at most length bytes: in
// blocks, or as a whole from a server that has only that.
func (s *fileService) readThrough(ctx context.Context, where wireWhere, offset, length uint64, to taker) error {
	if !s.isNewer() {
		data, err := s.readWhole(ctx, where)
		if err != nil {
			return err
		}
		data = data[min(offset, uint64(len(data))):]
		return to.take(data[:min(length, uint64(len(data)))])
	}
	l, err := s.conn.current(ctx)
	if err != nil {
		return err
	}
	id, err := s.openOn(ctx, l, where, "")
	if err != nil {
		return s.contentError(ctx, where, err)
	}
	defer s.closeOn(l, id)
	for length > 0 {
		var block readBlockResult
		params := readBlockParams{id, offset, uint32(min(length, blockBytes))}
		if err := s.conn.callOn(ctx, l, s.conn.places, "fs/readBlock", params, &block); err != nil {
			return err
		}
		if len(block.Chunk) > int(params.Len) {
			return s.conn.broken(l, protocolErrorf("fs/readBlock returned more than was asked for"))
		}
		if err := to.take(block.Chunk); err != nil {
			return err
		}
		offset += uint64(len(block.Chunk))
		length -= uint64(len(block.Chunk))
		if block.EOF || len(block.Chunk) == 0 {
			return nil
		}
	}
	return nil
}

// downloadTaker sends what is downloaded.
type downloadTaker struct {
	stream grpc.ServerStreamingServer[execwirev1.DownloadFileResponse]
	digest hash.Hash // nil if it is not wanted
}

func (d downloadTaker) take(data []byte) error {
	if d.digest != nil {
		d.digest.Write(data)
	}
	for piece := range slices.Chunk(data, messageBytes) {
		if err := d.stream.Send(&execwirev1.DownloadFileResponse{Message: &execwirev1.DownloadFileResponse_Data{Data: piece}}); err != nil {
			return err
		}
	}
	return nil
}

// DownloadFile implements FileSystemServiceServer.
func (s *fileService) DownloadFile(request *execwirev1.DownloadFileRequest, stream grpc.ServerStreamingServer[execwirev1.DownloadFileResponse]) error {
	ctx := stream.Context()
	where, err := s.wire(ctx, request)
	if err != nil {
		return err
	}
	if request.GetOffset() > math.MaxInt64 {
		return invalidField("offset", "is more than any file has")
	}
	m, err := s.describe(ctx, where)
	switch {
	case err != nil:
		return err
	case m.GetType() == execwirev1.FileType_FILE_TYPE_DIRECTORY:
		return failure(execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY, "%s is a directory", where.native)
	case m.GetType() != execwirev1.FileType_FILE_TYPE_REGULAR:
		return failure(execwirev1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE, "%s is not a file", where.native)
	case request.GetIfVersion() != "" && request.GetIfVersion() != m.GetVersion():
		return failure(execwirev1.ErrorReason_ERROR_REASON_FILE_CHANGED, "%s is not the version that was asked for any more", where.native)
	}
	head := &execwirev1.DownloadFileResponse{Message: &execwirev1.DownloadFileResponse_Head{Head: &execwirev1.DownloadHead{Metadata: m}}}
	if err := stream.Send(head); err != nil {
		return err
	}
	to := downloadTaker{stream: stream}
	if request.GetWantSha256() {
		to.digest = sha256.New()
	}
	length := uint64(math.MaxInt64)
	if request.Length != nil {
		length = request.GetLength()
	}
	if length > 0 {
		if err := s.readThrough(ctx, where, request.GetOffset(), length, to); err != nil {
			return err
		}
	}
	if to.digest == nil {
		return nil
	}
	after, err := s.describe(ctx, where)
	return stream.Send(&execwirev1.DownloadFileResponse{Message: &execwirev1.DownloadFileResponse_End{End: &execwirev1.DownloadEnd{
		Sha256: to.digest.Sum(nil), Changed: err != nil || after.GetVersion() != m.GetVersion()}}})
}

type wireEntries struct {
	Entries []struct {
		FileName    string  `param:"fileName"`
		IsDirectory bool    `param:"isDirectory"`
		IsFile      bool    `param:"isFile"`
		Base64      *string `param:"fileNameBase64"`
	} `param:"entries"`
}

// list returns the entries of a directory: links by what they lead to, and those that
// lead to nothing not at all.
func (s *fileService) list(ctx context.Context, where wireWhere) ([]*execwirev1.DirectoryEntry, error) {
	var result wireEntries
	if err := s.ask(ctx, "fs/readDirectory", where, where, &result); err != nil {
		return nil, err
	}
	entries := make([]*execwirev1.DirectoryEntry, 0, len(result.Entries))
	for _, said := range result.Entries {
		entry := &execwirev1.DirectoryEntry{Name: said.FileName}
		if said.Base64 != nil {
			raw, err := base64.StdEncoding.DecodeString(*said.Base64)
			if err != nil {
				return nil, protocolErrorf("a name in %s is not in base64", where.Path)
			}
			entry.RawName = raw
		}
		switch {
		case said.IsDirectory:
			entry.Type = execwirev1.FileType_FILE_TYPE_DIRECTORY
		case said.IsFile:
			entry.Type = execwirev1.FileType_FILE_TYPE_REGULAR
		}
		entry.TargetType = entry.Type
		entries = append(entries, entry)
	}
	return entries, nil
}

// ReadDirectory implements FileSystemServiceServer.
func (s *fileService) ReadDirectory(request *execwirev1.ReadDirectoryRequest, stream grpc.ServerStreamingServer[execwirev1.ReadDirectoryResponse]) error {
	where, err := s.wire(stream.Context(), request)
	if err != nil {
		return err
	}
	entries, err := s.list(stream.Context(), where)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(entries, maxListed) {
		if err := stream.Send(&execwirev1.ReadDirectoryResponse{Entries: part}); err != nil {
			return err
		}
	}
	return nil
}
