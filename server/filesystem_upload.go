package server

import (
	"context"
	"io"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/fsops"
)

// uploadStream is the server's side of an UploadFile stream.
type uploadStream = grpc.ClientStreamingServer[execwirev1.UploadFileRequest, execwirev1.UploadFileResponse]

// UploadFile implements the RPC.
func (s *fileSystemService) UploadFile(stream uploadStream) error {
	head, err := receiveHead(stream)
	if err != nil {
		return err
	}
	return s.receive(stream, head)
}

// receiveHead receives the first message of an upload.
func receiveHead(stream uploadStream) (*execwirev1.UploadHead, error) {
	first, err := receiveFirst(stream, "the stream ended before it began: send a head")
	if err == nil && first.GetHead() == nil {
		err = unexpectedMessage("the first message is not a head")
	}
	return first.GetHead(), err
}

// receive receives an upload after its head.
func (s *fileSystemService) receive(stream uploadStream, head *execwirev1.UploadHead) error {
	upload := s.writeInPlace
	if head.GetMode() == execwirev1.UploadMode_UPLOAD_MODE_REPLACE {
		upload = s.replace
	}
	response, err := upload(stream, head)
	if err != nil {
		return err
	}
	s.noteContent(int64(response.GetSize()))
	return stream.SendAndClose(response)
}

func (s *fileSystemService) writeInPlace(stream uploadStream, head *execwirev1.UploadHead) (*execwirev1.UploadFileResponse, error) {
	writer, err := fsops.Create(pathOf(head), pathOptions(head)...)
	if err != nil {
		return nil, err
	}
	var size uint64
	end, err := receiveFile(stream, func(_ context.Context, data []byte) error {
		size += uint64(len(data))
		_, err := writer.Write(data)
		return err
	})
	if closeErr := writer.Close(); err == nil {
		err = closeErr
	}
	if err == nil && len(end.GetSha256()) > 0 {
		err = invalidField("end.sha256", "is for files that are replaced: leave it out")
	}
	if err != nil {
		return nil, err
	}
	return &execwirev1.UploadFileResponse{Size: size}, nil
}

func (s *fileSystemService) replace(stream uploadStream, head *execwirev1.UploadHead) (*execwirev1.UploadFileResponse, error) {
	how := fsops.Replacement{
		Path:        pathOf(head),
		NoSymlinks:  head.GetNoSymlinks(),
		Owner:       caller(stream.Context()),
		ID:          head.GetUploadId(),
		Offset:      int64(head.GetOffset()),
		IfMatch:     head.GetIfMatchSha256(),
		IfVersion:   head.GetIfMatchVersion(),
		IfMissing:   head.GetIfMissing(),
		Permissions: head.Permissions,
		Sync:        head.GetSync(),
	}
	if head.GetModifyTime() != nil {
		how.ModifyTime = head.GetModifyTime().AsTime()
	}
	upload, err := s.server.uploads.Begin(stream.Context(), how)
	if err != nil {
		return nil, err
	}
	defer upload.Leave()
	end, err := receiveFile(stream, upload.Write)
	if err != nil {
		return nil, err
	}
	replaced, err := upload.Commit(stream.Context(), end.GetSha256())
	if err != nil {
		return nil, err
	}
	return &execwirev1.UploadFileResponse{Size: uint64(replaced.Size), Sha256: replaced.SHA256, Metadata: toMetadata(replaced.Metadata), Created: replaced.Created}, nil
}

// receiveFile passes on the data of a client up to the end of the stream, and returns
// the final message.
func receiveFile(stream uploadStream, write func(ctx context.Context, data []byte) error) (*execwirev1.UploadEnd, error) {
	var end *execwirev1.UploadEnd
	err := receiveRest(stream, func(m *execwirev1.UploadFileRequest) error {
		switch {
		case m.GetHead() != nil:
			return unexpectedMessage("there was a head already: send data")
		case end != nil:
			return unexpectedMessage("there was an end already: send nothing after it")
		case m.GetEnd() != nil:
			end = m.GetEnd()
			return nil
		}
		return write(stream.Context(), m.GetData())
	})
	switch {
	case err != io.EOF:
		return nil, err
	case end == nil:
		return nil, unexpectedMessage("the stream ended before the file was whole: send an end after the data")
	}
	return end, nil
}

// GetUpload implements the RPC.
func (s *fileSystemService) GetUpload(ctx context.Context, req *execwirev1.GetUploadRequest) (*execwirev1.GetUploadResponse, error) {
	state, err := s.server.uploads.Find(caller(ctx), req.GetUploadId())
	if err != nil {
		return nil, err
	}
	text, raw := toUTF8(state.Path)
	return &execwirev1.GetUploadResponse{Path: text, RawPath: raw, ReceivedBytes: uint64(state.Received),
		Complete: state.Complete, ExpireTime: toTime(state.Expires)}, nil
}
