package files

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// countingFiles is a server that accepts any upload as complete, and counts them.
type countingFiles struct {
	execwirev1.UnimplementedFileSystemServiceServer
	uploads atomic.Int32
}

func (f *countingFiles) GetMetadata(context.Context, *execwirev1.GetMetadataRequest) (*execwirev1.GetMetadataResponse, error) {
	return &execwirev1.GetMetadataResponse{}, nil
}

func (f *countingFiles) UploadFile(stream grpc.ClientStreamingServer[execwirev1.UploadFileRequest, execwirev1.UploadFileResponse]) error {
	f.uploads.Add(1)
	for {
		_, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return stream.SendAndClose(&execwirev1.UploadFileResponse{})
		case err != nil:
			return err
		}
	}
}

// stalledConn is a connection that stops accepting data at some time, and breaks later.
type stalledConn struct {
	net.Conn
	stalls  atomic.Bool
	waiting chan struct{} // closed when a write waits
	once    sync.Once
	broken  chan struct{}
	closes  atomic.Int32
	closed  chan struct{} // closed when gRPC is done with it
}

func (c *stalledConn) Write(p []byte) (int, error) {
	if !c.stalls.Load() {
		return c.Conn.Write(p)
	}
	c.once.Do(func() { close(c.waiting) })
	<-c.broken
	return 0, errors.New("the connection is broken")
}

// Close is called by the test first, and by gRPC when nothing more is written.
func (c *stalledConn) Close() error {
	if c.closes.Add(1) == 2 {
		close(c.closed)
	}
	return c.Conn.Close()
}

// breakingFiles breaks the connection between the start of an upload stream and
// its first message.
type breakingFiles struct {
	execwirev1.FileSystemServiceClient
	broken func()
}

type breakingUpload struct {
	grpc.ClientStreamingClient[execwirev1.UploadFileRequest, execwirev1.UploadFileResponse]
	broken func()
}

func (f *breakingFiles) UploadFile(ctx context.Context, options ...grpc.CallOption) (grpc.ClientStreamingClient[execwirev1.UploadFileRequest, execwirev1.UploadFileResponse], error) {
	stream, err := f.FileSystemServiceClient.UploadFile(ctx, options...)
	return &breakingUpload{stream, f.broken}, err
}

func (u *breakingUpload) Send(m *execwirev1.UploadFileRequest) error {
	u.broken()
	return u.ClientStreamingClient.Send(m)
}

// gRPC retries a stream whose first message was not sent: with what was sent until the
// connection broke, and then the half-close. A server that writes in place would accept
// that as an empty file.
func TestWriteFile_ConnectionBreaks_IsNotRetriedInPart(t *testing.T) {
	listener := bufconn.Listen(64 << 10)
	srv, files := grpc.NewServer(), &countingFiles{}
	execwirev1.RegisterFileSystemServiceServer(srv, files)
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() { _ = srv.Serve(listener) })
	defer srv.Stop()
	stalled := &stalledConn{waiting: make(chan struct{}), broken: make(chan struct{}), closed: make(chan struct{})}
	first := true
	conn, err := grpc.NewClient("passthrough:///core",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := listener.DialContext(ctx)
			if err == nil && first {
				first, stalled.Conn = false, conn
				return stalled, nil
			}
			return conn, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	client := execwirev1.NewFileSystemServiceClient(conn)
	if _, err := client.GetMetadata(t.Context(), &execwirev1.GetMetadataRequest{}); err != nil {
		t.Fatal(err)
	}
	stalled.stalls.Store(true)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer func() { _ = conn.Close() }()
	waiting.Go(func() { // fills the connection, so that later messages wait
		_, _ = client.GetMetadata(t.Context(), &execwirev1.GetMetadataRequest{})
	})
	<-stalled.waiting
	broken := sync.OnceFunc(func() {
		_ = stalled.Close()
		conn.WaitForStateChange(t.Context(), connectivity.Ready)
		close(stalled.broken)
		<-stalled.closed
	})
	defer broken()
	head := &execwirev1.UploadHead{Path: "/f", Mode: execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE}
	err = upload(t.Context(), &breakingFiles{client, broken}, head, make([]byte, WholeWrite+1))
	if uploads := files.uploads.Load(); err == nil || uploads > 0 {
		t.Errorf("a write of %d bytes, none of which was sent, ended with %v, and the server accepted %d uploads", WholeWrite+1, err, uploads)
	}
}
