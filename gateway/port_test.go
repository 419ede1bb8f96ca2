package gateway

import (
	"fmt"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/testproc"
	"github.com/execwire/execwire/internal/testrace"
)

// portsAnswer is the result of port/list and port/watch, and the parameters of port/changed.
type portsAnswer struct {
	Ports, Closed, Opened []portAnswer
	Watching, Ended       bool
	Error                 *wireError
}

type portAnswer struct {
	Address   string
	Port, PID int
	ProcessID string
	Program   string
}

// portChanges returns the notifications of watches, in order.
func (cl *client) portChanges() (changes []portsAnswer) {
	cl.t.Helper()
	for _, f := range cl.all() {
		if f.Method == "port/changed" {
			var m struct{ Params portsAnswer }
			cl.decode(f.raw, &m)
			changes = append(changes, m.Params)
		}
	}
	return changes
}

// A client that does not read has a bounded number of notifications in memory: the server combines
// later changes. It delays no other watch.
func TestPortWatch_SlowReader_ChangesAreCombined(t *testing.T) {
	testrace.Slow(t)
	const toggles = 39 // many more than the queues of the call take; odd: at the end the port is open
	srv := newTestServer(t)
	cl, session := srv.attach("", func(p *pipe, _ *Config) { p.capacity = 1 })
	cl.start("p", "", "argv", testproc.Argv("listen-toggle", "127.0.0.1:0"), "pipeStdin", true)
	cl.must("port/watch", map[string]any{"watchId": 1})
	watch, err := execwirev1.NewPortServiceClient(srv.channel).WatchPorts(t.Context(), &execwirev1.WatchPortsRequest{SessionId: session})
	if err == nil {
		_, err = watch.Recv()
	}
	do(t, err)
	cl.stopReading()
	processes, last := execwirev1.NewProcessServiceClient(srv.channel), uint32(0)
	for n := range toggles {
		_, err := processes.WriteStdin(t.Context(), &execwirev1.WriteStdinRequest{SessionId: session, ProcessId: "p", Data: []byte("\n"), WriteId: fmt.Sprint(n)})
		do(t, err)
		change, err := watch.Recv()
		do(t, err)
		for _, opened := range change.GetOpened() {
			last = opened.GetPort()
		}
	}
	cl.resumeReading()
	cl.wait("the last change", func(f frame) bool {
		var m struct{ Params portsAnswer }
		if f.Method == "port/changed" {
			cl.decode(f.raw, &m)
		}
		return len(m.Params.Opened) == 1 && m.Params.Opened[0].Port == int(last)
	})
	open := map[portAnswer]bool{}
	for _, change := range cl.portChanges() {
		for _, p := range change.Closed {
			if !open[p] {
				t.Errorf("%v is closed and was not open", p)
			}
			delete(open, p)
		}
		for _, p := range change.Opened {
			open[p] = true
		}
	}
	if len(open) != 1 {
		t.Errorf("open are %v", open)
	}
	if got := len(cl.portChanges()); got >= toggles-10 {
		t.Errorf("%d notifications of %d changes were in memory", got, toggles)
	}
}

// Watches of ports and of files have one limit and one set of ids.
func TestPortWatch_SharesLimitAndIDsWithFileWatches(t *testing.T) {
	cl, _ := newTestServer(t).attach("", func(_ *pipe, config *Config) { config.Watches = 2 })
	cl.must("fs/watch", watchOf(1, t.TempDir()))
	cl.must("port/watch", map[string]any{"watchId": 2})
	cl.refused("port/watch", map[string]any{"watchId": 3}, -32005, "watches_per_connection")
	cl.must("port/unwatch", map[string]any{"watchId": 2})
	cl.refused("port/watch", map[string]any{"watchId": 1}, -32600, "watch 1 already exists")
	if got := string(cl.must("port/watch", map[string]any{"watchId": 3})); got != `{"watching":true,"ports":[],"truncated":false}` {
		t.Errorf("port/watch returned %s", got)
	}
	cl.refused("port/watch", map[string]any{"watchId": 3}, -32600, "watch 3 already exists")
	cl.refused("port/watch", map[string]any{}, -32602, "missing field `watchId`")
	cl.refused("port/list", map[string]any{"processId": 7}, -32602, "")
	cl.refused("port/list", map[string]any{"processId": "none"}, -32600, "unknown process id none")
}
