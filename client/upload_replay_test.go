package client

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// stalledConn is a connection that stops accepting data, and then breaks.
type stalledConn struct {
	net.Conn
	mu      sync.Mutex
	stalls  bool          // guarded by mu
	waiting chan struct{} // closed when a write blocks
	once    sync.Once
	broken  chan struct{}
}

func (c *stalledConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	stalls := c.stalls
	c.mu.Unlock()
	if !stalls {
		return c.Conn.Write(p)
	}
	c.once.Do(func() { close(c.waiting) })
	<-c.broken
	return 0, errors.New("the connection is broken")
}

// gRPC transparently retries a stream whose header was not sent, if permitted: with the
// data sent until the connection broke, followed by the half-close. That would be a
// partial file, which must not replace the file.
func TestUpload_StreamIsNotRetriedTransparently(t *testing.T) {
	files := newFakeUploads()
	f, _ := newFakeWith(t, func(s *grpc.Server) { execwirev1.RegisterFileSystemServiceServer(s, files) })
	stalled := &stalledConn{waiting: make(chan struct{}), broken: make(chan struct{})}
	first := true
	conn, err := grpc.NewClient("passthrough:///fake",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := f.listener.DialContext(ctx)
			if err == nil && first {
				first, stalled.Conn = false, conn
				return stalled, nil
			}
			return conn, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	c := New(conn)
	_, _ = c.Stat(t.Context(), "/")
	stalled.mu.Lock()
	stalled.stalls = true
	stalled.mu.Unlock()
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer func() { _ = conn.Close() }()
	waiting.Go(func() { _, _ = c.Stat(t.Context(), "/") }) // fills the connection before the upload
	<-stalled.waiting
	content := contentOf(1 << 20)
	// gRPC aborts streams whose header it finds when it detects the lost connection.
	broken := sync.OnceFunc(func() {
		_ = stalled.Close()
		conn.WaitForStateChange(t.Context(), connectivity.Ready)
		close(stalled.broken)
	})
	defer broken()
	uploaded, err := c.Upload(t.Context(), "/f", bytes.NewReader(content), UploadOptions{OnProgress: func(sent int64) {
		if sent >= 2*pieceBytes {
			broken()
		}
	}})
	if err != nil || uploaded.Size != int64(len(content)) || !bytes.Equal(files.files["/f"], content) {
		t.Errorf("%d bytes, %v", uploaded.Size, err)
	}
	if len(files.heads) != 1 || files.received != len(content) {
		t.Errorf("the server has seen %d streams and %d bytes", len(files.heads), files.received)
	}
}
