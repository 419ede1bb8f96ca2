package client

import (
	"context"
	"crypto/sha256"
	"sync"
	"testing"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type downloadStream = grpc.ServerStreamingServer[execwirev1.DownloadFileResponse]

// fakeFiles is a file system service whose methods are functions of the test.
type fakeFiles struct {
	execwirev1.UnimplementedFileSystemServiceServer

	mu        sync.Mutex
	downloads []func(*execwirev1.DownloadFileRequest, downloadStream) error                   // guarded by mu
	metadata  []func(*execwirev1.GetMetadataRequest) (*execwirev1.GetMetadataResponse, error) // guarded by mu
	entries   []*execwirev1.DirectoryEntry
}

// newFakeFiles serves files and returns a client for them.
func newFakeFiles(t testing.TB, files *fakeFiles) *Client {
	t.Helper()
	_, c := newFakeWith(t, func(s *grpc.Server) { execwirev1.RegisterFileSystemServiceServer(s, files) })
	return c
}

// next returns the function for the next call; the last one handles all further calls.
func next[T any](mu *sync.Mutex, list *[]T) T {
	mu.Lock()
	defer mu.Unlock()
	first := (*list)[0]
	if len(*list) > 1 {
		*list = (*list)[1:]
	}
	return first
}

func (f *fakeFiles) DownloadFile(
	request *execwirev1.DownloadFileRequest, stream downloadStream,
) error {
	return next(&f.mu, &f.downloads)(request, stream)
}

func (f *fakeFiles) GetMetadata(
	_ context.Context, request *execwirev1.GetMetadataRequest,
) (*execwirev1.GetMetadataResponse, error) {
	return next(&f.mu, &f.metadata)(request)
}

func (f *fakeFiles) ReadDirectory(
	_ *execwirev1.ReadDirectoryRequest, stream grpc.ServerStreamingServer[execwirev1.ReadDirectoryResponse],
) error {
	return stream.Send(&execwirev1.ReadDirectoryResponse{Entries: f.entries})
}

func headMessage(content string) *execwirev1.DownloadFileResponse {
	head := &execwirev1.DownloadHead{Metadata: &execwirev1.FileMetadata{
		Size: uint64(len(content)), Mode: 0o640, Type: execwirev1.FileType_FILE_TYPE_REGULAR}}
	return &execwirev1.DownloadFileResponse{Message: &execwirev1.DownloadFileResponse_Head{Head: head}}
}

func dataMessage(data string) *execwirev1.DownloadFileResponse {
	return &execwirev1.DownloadFileResponse{Message: &execwirev1.DownloadFileResponse_Data{Data: []byte(data)}}
}

func endMessage(data string) *execwirev1.DownloadFileResponse {
	digest := sha256.Sum256([]byte(data))
	return &execwirev1.DownloadFileResponse{Message: &execwirev1.DownloadFileResponse_End{
		End: &execwirev1.DownloadEnd{Sha256: digest[:]}}}
}

// sendsParts answers a download with messages.
func sendsParts(messages ...*execwirev1.DownloadFileResponse) func(*execwirev1.DownloadFileRequest, downloadStream) error {
	return func(_ *execwirev1.DownloadFileRequest, stream downloadStream) error {
		for _, message := range messages {
			if err := stream.Send(message); err != nil {
				return err
			}
		}
		return nil
	}
}

// sendsFile answers a download with a part of content, then err or the end.
func sendsFile(content string, most int, err error) func(*execwirev1.DownloadFileRequest, downloadStream) error {
	return func(request *execwirev1.DownloadFileRequest, stream downloadStream) error {
		if err := stream.Send(headMessage(content)); err != nil {
			return err
		}
		data := content[request.GetOffset():]
		if request.Length != nil {
			data = data[:min(uint64(len(data)), request.GetLength())]
		}
		data = data[:min(len(data), most)]
		for i := range len(data) {
			if err := stream.Send(dataMessage(data[i : i+1])); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		return stream.Send(endMessage(data))
	}
}
