package wsconn_test

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/wsconn"
)

// Data that the peer does not read must wait in the sender, not in the kernel,
// where it is neither bounded nor known to be unread.
func TestTune_LimitsUnsentData(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = inner.Close() }()
	peer, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = peer.Close() }()
	conn, err := wsconn.Tune(inner, 0, 0).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	const piece, most = 16 << 10, 1 << 20
	written := 0
	for written <= most {
		_ = conn.SetWriteDeadline(time.Now().Add(2 * time.Second))
		n, err := conn.Write(make([]byte, piece))
		written += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break // the buffers are full
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if written > most {
		t.Errorf("the kernel took %d bytes that the peer does not read, want %d at most", written, most)
	}
}
