package execserver

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/jsonrpc"
)

const (
	// blockBytes is how much of a file one request reads or writes.
	blockBytes = 512 << 10
	// messageBytes is the data in a message of a download.
	messageBytes = 64 << 10
	// maxEntries limits the entries in a message.
	maxEntries = 1000
)

// versionOf distinguishes two states of a file, as far as its metadata does.
func versionOf(m *execwirev1.FileMetadata) string {
	return fmt.Sprintf("%d.%09d-%d", m.GetModifyTime().GetSeconds(), m.GetModifyTime().GetNanos(), m.GetSize())
}

// GetMetadata implements FileSystemServiceServer. The target of a link is not known.
func (s *fileService) GetMetadata(ctx context.Context, request *execwirev1.GetMetadataRequest) (*execwirev1.GetMetadataResponse, error) {
	t, err := s.target(ctx, request)
	if err != nil {
		return nil, err
	}
	if request.GetWantSha256() {
		return nil, unsupported("want_sha256", "does not compute digests")
	}
	describe := s.describe
	if request.GetNoFollow() {
		describe = s.describeLink
	}
	m, err := describe(ctx, t)
	return &execwirev1.GetMetadataResponse{Metadata: m}, err
}

// contentError distinguishes directories from special files, for which the reference
// returns the same error.
func (s *fileService) contentError(ctx context.Context, t target, err error) error {
	if errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE {
		return err
	}
	m, described := s.describe(ctx, t)
	if described == nil && m.GetType() == execwirev1.FileType_FILE_TYPE_DIRECTORY {
		return failure(execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY, "%s is a directory", t.native)
	}
	return err
}

type openParams struct {
	HandleID string `json:"handleId"`
	target
	Mode string `json:"mode,omitempty"`
}

type readBlockParams struct {
	HandleID string `json:"handleId"`
	Offset   uint64 `json:"offset"`
	Len      uint32 `json:"len"`
}

type readBlockResult struct {
	Chunk jsonrpc.Base64 `param:"chunk"`
	EOF   bool           `param:"eof"`
}

type closeParams struct {
	HandleID string `json:"handleId"`
}

// open opens a file and returns its handle, which belongs to the link.
func (s *fileService) open(ctx context.Context, t target, mode string) (string, error) {
	id := rand.Text()
	err := s.ask(ctx, "fs/open", t, openParams{id, t, mode}, nil)
	if err != nil && ctx.Err() != nil {
		s.close(t.link, id) // it may be open
	}
	return id, s.contentError(ctx, t, err)
}

// close closes a handle without waiting for that. A lost link has no handles.
func (s *fileService) close(l *link, id string) {
	s.conn.tasks.Go(func() { _ = s.conn.call(l.over, l, "fs/close", closeParams{id}, nil) })
}

// read passes the content of a file from an offset on to take, at most length bytes: in
// blocks, or from older servers as a whole.
func (s *fileService) read(ctx context.Context, t target, offset, length uint64, take func([]byte) error) error {
	if !t.link.peer.uris {
		var whole struct {
			Data jsonrpc.Base64 `param:"dataBase64"`
		}
		if err := s.ask(ctx, "fs/readFile", t, t, &whole); err != nil {
			return s.contentError(ctx, t, err)
		}
		data := whole.Data[min(offset, uint64(len(whole.Data))):]
		return take(data[:min(length, uint64(len(data)))])
	}
	id, err := s.open(ctx, t, "")
	if err != nil {
		return err
	}
	defer s.close(t.link, id)
	for length > 0 {
		var block readBlockResult
		params := readBlockParams{id, offset, uint32(min(length, blockBytes))}
		if err := s.conn.call(ctx, t.link, "fs/readBlock", params, &block); err != nil {
			return err
		}
		if len(block.Chunk) > int(params.Len) {
			return s.conn.broken(t.link, protocolErrorf("fs/readBlock returned more than was asked for"))
		}
		if err := take(block.Chunk); err != nil {
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

// DownloadFile implements FileSystemServiceServer.
func (s *fileService) DownloadFile(request *execwirev1.DownloadFileRequest, stream grpc.ServerStreamingServer[execwirev1.DownloadFileResponse]) error {
	ctx := stream.Context()
	t, err := s.target(ctx, request)
	if err != nil {
		return err
	}
	if request.GetOffset() > math.MaxInt64 {
		return invalidField("offset", "is more than any file has")
	}
	m, err := s.describe(ctx, t)
	switch {
	case err != nil:
		return err
	case m.GetType() == execwirev1.FileType_FILE_TYPE_DIRECTORY:
		return failure(execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY, "%s is a directory", t.native)
	case m.GetType() != execwirev1.FileType_FILE_TYPE_REGULAR:
		return failure(execwirev1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE, "%s is not a file", t.native)
	case request.GetIfVersion() != "" && request.GetIfVersion() != m.GetVersion():
		return failure(execwirev1.ErrorReason_ERROR_REASON_FILE_CHANGED, "%s has another version than if_version", t.native)
	}
	head := &execwirev1.DownloadFileResponse{Message: &execwirev1.DownloadFileResponse_Head{Head: &execwirev1.DownloadHead{Metadata: m}}}
	if err := stream.Send(head); err != nil {
		return err
	}
	length := uint64(math.MaxInt64)
	if request.Length != nil {
		length = request.GetLength()
	}
	digest := sha256.New()
	err = s.read(ctx, t, request.GetOffset(), length, func(data []byte) error {
		if request.GetWantSha256() {
			digest.Write(data)
		}
		for piece := range slices.Chunk(data, messageBytes) {
			if err := stream.Send(&execwirev1.DownloadFileResponse{Message: &execwirev1.DownloadFileResponse_Data{Data: piece}}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || !request.GetWantSha256() {
		return err
	}
	after, err := s.describe(ctx, t)
	return stream.Send(&execwirev1.DownloadFileResponse{Message: &execwirev1.DownloadFileResponse_End{End: &execwirev1.DownloadEnd{
		Sha256: digest.Sum(nil), Changed: err != nil || after.GetVersion() != m.GetVersion()}}})
}

type wireEntries struct {
	Entries []struct {
		FileName    string `param:"fileName"`
		IsDirectory bool   `param:"isDirectory"`
		IsFile      bool   `param:"isFile"`
	} `param:"entries"`
}

// list returns the entries of a directory: links with the type of their target, without
// those that have none.
func (s *fileService) list(ctx context.Context, t target) ([]*execwirev1.DirectoryEntry, error) {
	var result wireEntries
	if err := s.ask(ctx, "fs/readDirectory", t, t, &result); err != nil {
		return nil, err
	}
	entries := make([]*execwirev1.DirectoryEntry, 0, len(result.Entries))
	for _, e := range result.Entries {
		entry := &execwirev1.DirectoryEntry{Name: e.FileName}
		switch {
		case e.IsDirectory:
			entry.Type = execwirev1.FileType_FILE_TYPE_DIRECTORY
		case e.IsFile:
			entry.Type = execwirev1.FileType_FILE_TYPE_REGULAR
		}
		entry.TargetType = entry.Type
		entries = append(entries, entry)
	}
	return entries, nil
}

// ReadDirectory implements FileSystemServiceServer.
func (s *fileService) ReadDirectory(request *execwirev1.ReadDirectoryRequest, stream grpc.ServerStreamingServer[execwirev1.ReadDirectoryResponse]) error {
	t, err := s.target(stream.Context(), request)
	if err != nil {
		return err
	}
	entries, err := s.list(stream.Context(), t)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(entries, maxEntries) {
		if err := stream.Send(&execwirev1.ReadDirectoryResponse{Entries: part}); err != nil {
			return err
		}
	}
	return nil
}
