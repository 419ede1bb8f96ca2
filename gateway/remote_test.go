package gateway

import (
	"fmt"
	"testing"

	"google.golang.org/grpc"
)

// The server is on another host, as far as the gateway can tell.
func TestRemoteServer(t *testing.T) {
	srv := newTestServer(t, func(s *serverSettings) { s.wire = true })
	cl, id := srv.attach("")
	cl.refused("process/read", map[string]any{"processId": "p"}, -32600, "unknown process id p")
	cl.refused("process/start", startOf("p", "true", "argv", []string{"/no/such"}), -32603, "No such file or directory (os error 2)")
	cl.start("", "read line; echo $line; cat", "pipeStdin", true)
	cl.must("process/write", with(writeOf("", "hello\n"), "writeId", "1"))
	cl.event("", "process/output")
	const bytes = 4 << 20
	cl.start("big", fmt.Sprintf("head -c %d /dev/zero", bytes))
	if text, _ := cl.output("big", 1); len(text) != bytes {
		t.Errorf("%d bytes of %d", len(text), bytes)
	}
	cl.drop()
	cl, _ = srv.attach(id)
	if a := cl.readOutput("", "afterSeq", 0); a.text() != "hello\n" {
		t.Errorf("%+v", a)
	}
	cl.must("process/terminate", map[string]any{"processId": ""})
	if _, code := cl.output("", 2); code != 137 {
		t.Errorf("it exited with %d", code)
	}
}

// The close code tells the client to try again.
func TestRemoteServer_Lost_ClosesConnection(t *testing.T) {
	srv := newTestServer(t, func(s *serverSettings) { s.wire = true })
	cl, _ := srv.attach("")
	_ = srv.channel.(*grpc.ClientConn).Close()
	if err := cl.ended(); err == nil || cl.pipe.reason == "" {
		t.Errorf("Serve returned %v, and the connection was closed with %d %q", err, cl.pipe.code, cl.pipe.reason)
	}
}
