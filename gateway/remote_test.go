package gateway

import (
	"fmt"
	"testing"

	"google.golang.org/grpc"
)

// TestACoreOverAWireIsNoDifferent goes through what a client does with a core on
// another host, as seen from here.
func TestACoreOverAWireIsNoDifferent(t *testing.T) {
	core := newCore(t, func(s *coreSettings) { s.wire = true })
	cl, id := core.attach("")
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
	cl, _ = core.attach(id)
	if a := cl.readOutput("", "afterSeq", 0); a.text() != "hello\n" {
		t.Errorf("%+v", a)
	}
	cl.must("process/terminate", map[string]any{"processId": ""})
	if _, code := cl.output("", 2); code != 137 {
		t.Errorf("it exited with %d", code)
	}
}

// TestALostCoreEndsTheConnection tells the client to come back.
func TestALostCoreEndsTheConnection(t *testing.T) {
	core := newCore(t, func(s *coreSettings) { s.wire = true })
	cl, _ := core.attach("")
	_ = core.channel.(*grpc.ClientConn).Close()
	if err := cl.ended(); err == nil || cl.pipe.reason == "" {
		t.Errorf("Serve returned %v, and the connection was closed with %d %q", err, cl.pipe.code, cl.pipe.reason)
	}
}
