package files

import (
	"context"
	"encoding/base64"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// fileService is the service of files of a server in another process.
func fileService(c *harness.Command, t *testing.T) execwirev1.FileSystemServiceClient {
	t.Helper()
	return execwirev1.NewFileSystemServiceClient(harness.Dial(t, "tcp", c.Address(harness.TCPTransport)))
}

// fileCall is an operation on files over both protocols. Either can be missing.
type fileCall struct {
	name   string
	call   func(context.Context, execwirev1.FileSystemServiceClient) error
	method string
	params harness.RPCParams
}

// unary calls a unary method of the generated client.
func unary[Request, Response any, Option any](
	method func(execwirev1.FileSystemServiceClient, context.Context, Request, ...Option) (Response, error), request Request,
) func(context.Context, execwirev1.FileSystemServiceClient) error {
	return func(ctx context.Context, files execwirev1.FileSystemServiceClient) error {
		_, err := method(files, ctx, request)
		return err
	}
}

type fileClient = execwirev1.FileSystemServiceClient

// uploading uploads data.
func uploading(head *execwirev1.UploadHead, data []byte) func(context.Context, fileClient) error {
	return func(ctx context.Context, files fileClient) error {
		stream, err := files.UploadFile(ctx)
		if err != nil {
			return err
		}
		message := &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: head}}
		for err = stream.Send(message); err == nil && len(data) > 0; err = stream.Send(message) {
			piece := data[:min(32<<10, len(data))]
			data = data[len(piece):]
			message = &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Data{Data: piece}}
		}
		if err == nil {
			_ = stream.Send(&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_End{End: &execwirev1.UploadEnd{}}})
		}
		_, err = stream.CloseAndRecv() // returns the error if sending failed
		return err
	}
}

// reading reads a stream to its end.
func reading[M any, S interface{ Recv() (M, error) }](open func(context.Context, fileClient) (S, error)) func(context.Context, fileClient) error {
	return func(ctx context.Context, files fileClient) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(harness.ErrStop)
		stream, err := open(ctx, files)
		for err == nil {
			_, err = stream.Recv()
		}
		if err == io.EOF {
			return nil
		}
		return err
	}
}

func downloading(request *execwirev1.DownloadFileRequest) func(context.Context, fileClient) error {
	return reading[*execwirev1.DownloadFileResponse](func(ctx context.Context, files fileClient) (execwirev1.FileSystemService_DownloadFileClient, error) {
		return files.DownloadFile(ctx, request)
	})
}

func listing(request *execwirev1.ReadDirectoryRequest) func(context.Context, fileClient) error {
	return reading[*execwirev1.ReadDirectoryResponse](func(ctx context.Context, files fileClient) (execwirev1.FileSystemService_ReadDirectoryClient, error) {
		return files.ReadDirectory(ctx, request)
	})
}

// fileOutcome is the result of a call over both transports; zero means success.
type fileOutcome struct {
	reason  execwirev1.ErrorReason
	code    int
	message string
}

func (f fileCall) expect(t *testing.T, files fileClient, c *harness.RPCClient, want fileOutcome) {
	t.Helper()
	if f.call != nil {
		if err := f.call(harness.Context(t), files); client.Reason(err) != want.reason || (err == nil) != (want.reason == 0) {
			t.Errorf("%s: %v, want %v", f.name, err, want.reason)
		}
	}
	if f.method == "" {
		return
	}
	var got harness.RPCError
	if answer := c.Call(f.method, f.params); answer.Error != nil {
		got = *answer.Error
	}
	if got.Code != want.code || !strings.Contains(got.Message, want.message) {
		t.Errorf("%s: %s was answered %d %s, want %d %s", f.name, f.method, got.Code, got.Message, want.code, want.message)
	}
}

func inBase64(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

// namesIn lists a directory that only the server can see.
func namesIn(t *testing.T, files fileClient, dir string) []string {
	t.Helper()
	stream, err := files.ReadDirectory(harness.Context(t), &execwirev1.ReadDirectoryRequest{Path: dir})
	var names []string
	for err == nil {
		var m *execwirev1.ReadDirectoryResponse
		m, err = stream.Recv()
		for _, e := range m.GetEntries() {
			names = append(names, e.GetName())
		}
	}
	if err != io.EOF {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}
