package execserver

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// maxWholeWrite is the largest file that is written by one request, in bytes: with
// base64 around it it fits into a frame of 16 MiB, which servers of the reference
// take.
const maxWholeWrite = 11 << 20

type writeFileParams struct {
	wireWhere
	Data []byte `json:"dataBase64"`
}

// WriteFile implements FileSystemServiceServer.
func (s *fileService) WriteFile(ctx context.Context, request *execwirev1.WriteFileRequest) (*execwirev1.WriteFileResponse, error) {
	where, err := s.wire(ctx, request)
	if err != nil {
		return nil, err
	}
	return &execwirev1.WriteFileResponse{}, s.writeWhole(ctx, where, request.GetData())
}

func (s *fileService) writeWhole(ctx context.Context, where wireWhere, data []byte) error {
	if len(data) > maxWholeWrite {
		return failure(execwirev1.ErrorReason_ERROR_REASON_FILE_TOO_LARGE,
			"%s is to have more than %d bytes, which this server cannot be told: it takes no files in blocks", where.native, maxWholeWrite)
	}
	if data == nil {
		data = []byte{}
	}
	return s.ask(ctx, "fs/writeFile", where, writeFileParams{where, data}, nil)
}

// errNoReplacement is the refusal of uploads that are to take the place of a file.
var errNoReplacement = failure(execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED,
	"this server cannot put a file in the place of another in one step: write it in place, where a reader can see a part of it, or reach a server of execwire")

// UploadFile implements FileSystemServiceServer: in place alone.
func (s *fileService) UploadFile(stream grpc.ClientStreamingServer[execwirev1.UploadFileRequest, execwirev1.UploadFileResponse]) error {
	first, err := stream.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	head := first.GetHead()
	switch {
	case head == nil:
		return errUnexpected("an upload begins with its head")
	case head.GetMode() == execwirev1.UploadMode_UPLOAD_MODE_REPLACE:
		return errNoReplacement
	case head.GetMode() != execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE:
		return invalidField("head.mode", "is not set: use UPLOAD_MODE_IN_PLACE")
	}
	if field := replacing(head); field != "" {
		return invalidField("head."+field, "is for UPLOAD_MODE_REPLACE alone: leave it out")
	}
	where, err := s.wire(stream.Context(), head)
	if err != nil {
		return err
	}
	var size uint64
	if s.isNewer() {
		size, err = s.writeBlocks(stream, where)
	} else {
		size, err = s.writeAtOnce(stream, where)
	}
	if err != nil {
		return err
	}
	return stream.SendAndClose(&execwirev1.UploadFileResponse{Size: size})
}

// replacing is a field of a head that is not for uploads in place, "" for none.
func replacing(head *execwirev1.UploadHead) string {
	switch {
	case head.GetUploadId() != "":
		return "upload_id"
	case head.GetOffset() != 0:
		return "offset"
	case len(head.GetIfMatchSha256()) > 0:
		return "if_match_sha256"
	case head.GetIfMissing():
		return "if_missing"
	case head.Permissions != nil:
		return "permissions"
	case head.GetModifyTime() != nil:
		return "modify_time"
	case head.GetSync():
		return "sync"
	}
	return ""
}

func errUnexpected(problem string) error {
	return failure(execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE, "%s", problem)
}

// nextBlock gathers what comes, up to a number of bytes, and reports whether that was
// the end of the file.
func nextBlock(stream grpc.ClientStreamingServer[execwirev1.UploadFileRequest, execwirev1.UploadFileResponse], block []byte, size int) ([]byte, bool, error) {
	for len(block) < size {
		message, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return block, false, errUnexpected("the upload was over without an end: the file has a part of its content")
		case err != nil:
			return block, false, err
		case message.GetEnd() != nil && len(message.GetEnd().GetSha256()) > 0:
			return block, false, invalidField("end.sha256", "is for UPLOAD_MODE_REPLACE alone: leave it out")
		case message.GetEnd() != nil:
			return block, true, nil
		case message.GetHead() != nil:
			return block, false, errUnexpected("an upload has one head")
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

// writeBlocks writes a file as it comes.
func (s *fileService) writeBlocks(stream grpc.ClientStreamingServer[execwirev1.UploadFileRequest, execwirev1.UploadFileResponse], where wireWhere) (size uint64, err error) {
	ctx := stream.Context()
	l, err := s.conn.current(ctx)
	if err != nil {
		return 0, err
	}
	id, err := s.openOn(ctx, l, where, "replace")
	if err != nil {
		return 0, s.contentError(ctx, where, err)
	}
	closed := false
	defer func() {
		if !closed {
			s.closeOn(l, id)
		}
	}()
	block := make([]byte, 0, blockBytes)
	for ended := false; !ended; {
		var failed error
		block, ended, failed = nextBlock(stream, block[:0], blockBytes-messageBytes)
		// What came before a failure is written, as by a server of ours.
		for rest := block; len(rest) > 0; {
			piece := rest[:min(len(rest), blockBytes)]
			if err := s.conn.callOn(ctx, l, s.conn.places, "fs/writeBlock", writeBlockParams{id, size, piece}, nil); err != nil {
				return size, err
			}
			size += uint64(len(piece))
			rest = rest[len(piece):]
		}
		if failed != nil {
			return size, failed
		}
	}
	closed = true
	return size, s.conn.callOn(ctx, l, s.conn.places, "fs/close", closeParams{id}, nil)
}

// writeAtOnce writes a file when all of it is there. One that is too large is refused
// before anything is written.
func (s *fileService) writeAtOnce(stream grpc.ClientStreamingServer[execwirev1.UploadFileRequest, execwirev1.UploadFileResponse], where wireWhere) (uint64, error) {
	data, ended, err := nextBlock(stream, nil, maxWholeWrite+1)
	switch {
	case err != nil && reasonOf(err) == execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE:
		return 0, errUnexpected("the upload was over without an end: nothing was written")
	case err != nil:
		return 0, err
	case !ended && len(data) <= maxWholeWrite:
		return 0, errUnexpected("the upload was over without an end: nothing was written")
	}
	return uint64(len(data)), s.writeWhole(stream.Context(), where, data)
}
