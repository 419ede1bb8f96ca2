package server

import (
	"context"
	"crypto/sha256"
	"hash"
	"io"
	"math"
	"os"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/fsops"
)

// DownloadFile implements the RPC.
func (s *fileSystemService) DownloadFile(req *execwirev1.DownloadFileRequest, stream grpc.ServerStreamingServer[execwirev1.DownloadFileResponse]) error {
	file, err := fsops.Open(pathOf(req), pathOptions(req)...)
	if err != nil {
		return err
	}
	defer file.Close()
	defer s.noteContent(file.Metadata().Size)
	if version := req.GetIfVersion(); version != "" {
		if err := file.Want(version); err != nil {
			return err
		}
	}
	head := &execwirev1.DownloadHead{Metadata: toMetadata(file.Metadata())}
	if taker, ok := grpc.ServerTransportStreamFromContext(stream.Context()).(interface{ FileTaker() func(*os.File) }); ok && taker.FileTaker() != nil {
		taker.FileTaker()(file.Detach()) // the caller is in this program, and reads it
		return stream.Send(&execwirev1.DownloadFileResponse{Message: &execwirev1.DownloadFileResponse_Head{Head: head}})
	}
	if err := stream.Send(&execwirev1.DownloadFileResponse{Message: &execwirev1.DownloadFileResponse_Head{Head: head}}); err != nil {
		return err
	}
	file.Skip(int64(req.GetOffset()))
	left := uint64(math.MaxUint64)
	if req.Length != nil {
		left = req.GetLength()
	}
	var digest hash.Hash
	if req.GetWantSha256() {
		digest = sha256.New()
	}
	if err := sendFile(stream, file, left, digest); err != nil {
		return err
	}
	if req.GetFailIfChanged() {
		if err := file.Unchanged(); err != nil {
			return err
		}
	}
	if digest == nil {
		return nil
	}
	changed, err := file.Changed()
	if err != nil {
		return err
	}
	end := &execwirev1.DownloadEnd{Sha256: digest.Sum(nil), Changed: changed}
	return stream.Send(&execwirev1.DownloadFileResponse{Message: &execwirev1.DownloadFileResponse_End{End: end}})
}

// sendFile sends the rest of a file, at most left bytes, and adds it to the digest,
// if any.
func sendFile(stream grpc.ServerStreamingServer[execwirev1.DownloadFileResponse], file *fsops.File, left uint64, digest hash.Hash) error {
	memory := newDownloadBuffers(stream.Context())
	for left > 0 {
		piece := memory.next()
		piece = piece[:min(left, uint64(len(piece)))]
		n, err := io.ReadFull(file, piece)
		if n > 0 {
			if digest != nil {
				_, _ = digest.Write(piece[:n]) // never fails
			}
			data := &execwirev1.DownloadFileResponse_Data{Data: piece[:n]}
			if err := stream.Send(&execwirev1.DownloadFileResponse{Message: data}); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF, err == io.ErrUnexpectedEOF:
			return nil
		case err != nil:
			return err
		}
		left -= uint64(n)
	}
	return nil
}

// downloadBuffers are the buffers of one download. Over a network a message is copied
// when it is sent, and one buffer is reused. Within this program the client receives
// the message itself, so each buffer is used once, unless the client returns
// messages: then a few are used in turn.
type downloadBuffers struct {
	size int
	ring [][]byte // empty if each buffer is used once
	turn int
}

// newDownloadBuffers asks the stream whether the client returns messages, and when.
// The stream of a [grpc.Server] does not have the method, and encodes before Send
// returns.
func newDownloadBuffers(ctx context.Context) *downloadBuffers {
	turns := 1
	if stream, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ ReuseAfter() int }); ok {
		turns = stream.ReuseAfter()
	}
	return &downloadBuffers{size: messageBytes(ctx), ring: make([][]byte, turns)}
}

// next returns a buffer for the next message.
func (p *downloadBuffers) next() []byte {
	if len(p.ring) == 0 {
		return make([]byte, p.size)
	}
	piece := &p.ring[p.turn]
	p.turn = (p.turn + 1) % len(p.ring)
	if *piece == nil {
		*piece = make([]byte, p.size)
	}
	return *piece
}

// ReadDirectory implements the RPC.
func (s *fileSystemService) ReadDirectory(req *execwirev1.ReadDirectoryRequest, stream grpc.ServerStreamingServer[execwirev1.ReadDirectoryResponse]) error {
	return fsops.ReadDirectory(stream.Context(), pathOf(req), func(entries []fsops.Entry) error {
		return stream.Send(&execwirev1.ReadDirectoryResponse{Entries: toEntries(entries)})
	}, pathOptions(req)...)
}
