package execserver

import (
	"errors"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// maxWholeWrite is the largest file of one request: in base64 it fits a frame of 16 MiB,
// which servers of the reference accept.
const maxWholeWrite = 11 << 20

type writeFileParams struct {
	target
	Data []byte `json:"dataBase64"`
}

// errNoReplacement rejects uploads that replace a file.
var errNoReplacement = failure(execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED,
	"the exec-server protocol cannot replace a file in one step: write it in place, where a reader can see a part of it, or reach an execwire server by "+grpcURLs)

type uploadStream = grpc.ClientStreamingServer[execwirev1.UploadFileRequest, execwirev1.UploadFileResponse]

// UploadFile implements FileSystemServiceServer, only in place.
func (s *fileService) UploadFile(stream uploadStream) error {
	first, err := stream.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	head := first.GetHead()
	switch {
	case head == nil:
		return unexpectedMessage("an upload begins with its head")
	case head.GetMode() == execwirev1.UploadMode_UPLOAD_MODE_REPLACE:
		return errNoReplacement
	case head.GetMode() != execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE:
		return invalidField("head.mode", "is not set: use UPLOAD_MODE_IN_PLACE")
	}
	inPlace := &execwirev1.UploadHead{Path: head.GetPath(), RawPath: head.GetRawPath(), Mode: head.GetMode(),
		Sandbox: head.GetSandbox(), NoSymlinks: head.GetNoSymlinks()}
	if !proto.Equal(head, inPlace) {
		return invalidField("head", "has fields that are for UPLOAD_MODE_REPLACE alone: leave them out")
	}
	t, err := s.target(stream.Context(), head)
	if err != nil {
		return err
	}
	write := s.writeBlocks
	if !t.link.peer.uris {
		write = s.writeAtOnce
	}
	size, err := write(stream, t)
	if err != nil {
		return err
	}
	return stream.SendAndClose(&execwirev1.UploadFileResponse{Size: size})
}

// receive appends what comes to block, up to a size, and reports whether the upload has
// ended.
func receive(stream uploadStream, block []byte, size int) ([]byte, bool, error) {
	for len(block) < size {
		message, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return block, false, unexpectedMessage("the upload ended without an end message")
		case err != nil:
			return block, false, err
		case message.GetEnd() != nil && len(message.GetEnd().GetSha256()) > 0:
			return block, false, invalidField("end.sha256", "is for UPLOAD_MODE_REPLACE alone: leave it out")
		case message.GetEnd() != nil:
			return block, true, nil
		case message.GetHead() != nil:
			return block, false, unexpectedMessage("an upload has one head")
		}
		block = append(block, message.GetData()...)
	}
	return block, false, nil
}

type writeBlockParams struct {
	HandleID string `json:"handleId"`
	Offset   uint64 `json:"offset"`
	Chunk    []byte `json:"chunk"`
}

// writeBlocks writes a file as it comes, including what comes before an error, as an
// execwire server does.
func (s *fileService) writeBlocks(stream uploadStream, t target) (size uint64, err error) {
	ctx := stream.Context()
	id, err := s.open(ctx, t, "replace")
	if err != nil {
		return 0, err
	}
	block := make([]byte, 0, blockBytes)
	for ended := false; !ended && err == nil; {
		block, ended, err = receive(stream, block[:0], blockBytes-messageBytes)
		for piece := range slices.Chunk(block, blockBytes) {
			if err := s.conn.call(ctx, t.link, "fs/writeBlock", writeBlockParams{id, size, piece}, nil); err != nil {
				s.close(t.link, id)
				return size, err
			}
			size += uint64(len(piece))
		}
	}
	if err != nil {
		s.close(t.link, id)
		return size, err
	}
	return size, s.conn.call(ctx, t.link, "fs/close", closeParams{id}, nil)
}

// writeAtOnce writes a file when all of it is there. One that is too large is rejected
// before anything is written.
func (s *fileService) writeAtOnce(stream uploadStream, t target) (uint64, error) {
	data, _, err := receive(stream, []byte{}, maxWholeWrite+1)
	if err != nil {
		return 0, err
	}
	if len(data) > maxWholeWrite {
		return 0, failure(execwirev1.ErrorReason_ERROR_REASON_FILE_TOO_LARGE,
			"%s is to have more than %d bytes, which is the limit of this server: it does not write files in blocks", t.native, maxWholeWrite)
	}
	return uint64(len(data)), s.ask(stream.Context(), "fs/writeFile", t, writeFileParams{t, data}, nil)
}
