package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"hash"
	"io"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/config"
)

// uploadOf sends a file in pieces of odd sizes and returns the number of bytes sent.
func uploadOf(t *testing.T, files execwirev1.FileSystemServiceClient, path string, content []byte) uint64 {
	t.Helper()
	stream, err := files.UploadFile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	head := &execwirev1.UploadHead{Path: path, Mode: execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE}
	message := &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: head}}
	for size := 1; ; size = size*3 + 1 {
		if err := stream.Send(message); err != nil {
			break // CloseAndRecv returns the error
		}
		if message.GetEnd() != nil {
			break
		}
		if len(content) == 0 {
			message = &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_End{End: &execwirev1.UploadEnd{}}}
			continue
		}
		piece := content[:min(size, 1<<20, len(content))]
		content = content[len(piece):]
		message = &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Data{Data: piece}}
	}
	resp, err := stream.CloseAndRecv()
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetSize()
}

// receive reads a download to its end and computes a digest.
func receive(t *testing.T, stream grpc.ServerStreamingClient[execwirev1.DownloadFileResponse], digest hash.Hash) {
	t.Helper()
	for {
		m, err := stream.Recv()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		digest.Write(m.GetData())
	}
}

// Files of any size are transferred unchanged over every transport, to clients with the default
// message sizes of gRPC.
func TestFiles_EveryTransport(t *testing.T) {
	s := harness.NewServer(t, nil)
	limit := int(config.Default().ReadFile)
	content := bytes.Repeat([]byte("0123456789abcdefghijklm"), 12<<20/23)
	want := sha256.Sum256(content)
	for _, d := range harness.Transports {
		conn, _ := s.Connect(t, d)
		files := execwirev1.NewFileSystemServiceClient(conn)
		path := filepath.Join(t.TempDir(), "f")
		if size := uploadOf(t, files, path, content); size != uint64(len(content)) {
			t.Errorf("%s: %d bytes of %d were taken", d, size, len(content))
		}
		stream, err := files.DownloadFile(t.Context(), &execwirev1.DownloadFileRequest{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		digest := sha256.New()
		receive(t, stream, digest)
		if !bytes.Equal(digest.Sum(nil), want[:]) {
			t.Errorf("%s: the received file differs", d)
		}
		if _, err := files.WriteFile(t.Context(), &execwirev1.WriteFileRequest{Path: path, Data: content[:limit]}); err != nil {
			t.Fatal(err)
		}
		whole, err := files.ReadFile(t.Context(), &execwirev1.ReadFileRequest{Path: path})
		if err != nil || !bytes.Equal(whole.GetData(), content[:limit]) {
			t.Errorf("%s: the largest file that is read at once: %d bytes, %v", d, len(whole.GetData()), err)
		}
	}
}

// A client that does not read a file delays nothing else.
func TestDownload_Unread_DelaysNoOtherCall(t *testing.T) {
	s := harness.NewServer(t, nil)
	for _, d := range harness.Transports {
		conn, _ := s.Connect(t, d)
		files := execwirev1.NewFileSystemServiceClient(conn)
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 1<<40); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		stuck, err := files.DownloadFile(ctx, &execwirev1.DownloadFileRequest{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stuck.Recv(); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if _, err := files.GetMetadata(t.Context(), &execwirev1.GetMetadataRequest{Path: path}); err != nil {
				t.Fatal(err)
			}
		}
		cancel(harness.ErrStop)
		for err == nil {
			_, err = stuck.Recv()
		}
		if status.Code(err) != codes.Canceled {
			t.Errorf("%s: the download ended with %v", d, err)
		}
	}
}
