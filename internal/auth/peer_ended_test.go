package auth_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/execwire/execwire/internal/auth"
)

// connectAndLeave connects to a unix socket and exits; its child keeps the
// connection until stdin ends.
const connectAndLeave = `
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
if sys.argv[2] == "stay" or os.fork() == 0:
    sys.stdin.read()
os._exit(0)
`

func TestPeerEnded_ProcessExited(t *testing.T) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "s")
	lis, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	for what, ended := range map[string]bool{"stay": false, "leave": true} {
		in, hold, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command("/usr/bin/python3", "-c", connectAndLeave, path, what)
		c.Stdin = in
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		_ = in.Close()
		conn, err := lis.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if ended {
			if err := c.Wait(); err != nil {
				t.Fatal(err)
			}
		}
		peer, err := auth.UnixPeer(conn.(*net.UnixConn))
		if err != nil || int(peer.PID) != c.Process.Pid {
			t.Errorf("%s: UnixPeer = %+v, %v, want process %d", what, peer, err, c.Process.Pid)
		}
		if got := auth.PeerEnded(conn.(*net.UnixConn)); got != ended {
			t.Errorf("%s: PeerEnded = %v", what, got)
		}
		_ = hold.Close()
		// The connection ends with the process that holds it.
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: something was sent", what)
		}
		_ = conn.Close()
		if !ended {
			if err := c.Wait(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A peer on loopback has ended when no process has its socket open.
func TestLoopbackPeerEnded(t *testing.T) {
	lis, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	client, err := net.Dial("tcp4", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	accepted, err := lis.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = accepted.Close() }()
	conn := accepted.(*net.TCPConn)
	peer, err := auth.LoopbackPeer(conn)
	if err != nil {
		t.Fatal(err)
	}
	if auth.LoopbackPeerEnded(conn, peer) {
		t.Error("an open socket counts as ended")
	}
	if err := client.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if auth.LoopbackPeerEnded(conn, peer) {
		t.Error("a half-closed socket counts as ended")
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if !auth.LoopbackPeerEnded(conn, peer) {
		t.Error("a closed socket does not count as ended")
	}
}
