package gateway

import (
	"fmt"
	"testing"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/config"
)

// pidOf returns the pid of a process of the client's session, from the core.
func pidOf(s *harness.Server, c *harness.RPCClient, id string) int32 {
	c.Helper()
	response, err := execwirev1.NewProcessServiceClient(s.Core(c)).GetProcess(harness.Context(c),
		&execwirev1.GetProcessRequest{SessionId: c.Session, ProcessId: id})
	if err != nil {
		c.Fatal(err)
	}
	return response.GetProcess().GetPid()
}

// A normal close ends the session and its processes, whatever the grace period.
func TestSession_NormalClose_EndsIt(t *testing.T) {
	server := harness.NewServer(t, func(cfg *config.Config) { cfg.DefaultGrace = config.Duration(time.Hour) })
	c := harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize("")
	c.Start("p", harness.Program("sleep"), nil)
	pid := pidOf(server, c, "p")
	c.Shut()
	c.AwaitDeath(pid)
	again := harness.WebsocketClient(t, server.Address(harness.WebsocketTransport))
	again.Refused("initialize", harness.ResumeOf(c.Session), -32600)
	again.Initialize("") // a refused handshake may be repeated
}

// Requests before a normal close are handled and get their responses.
func TestNormalClose_PendingRequests_AreAnswered(t *testing.T) {
	server := harness.NewServer(t, nil)
	for range 20 {
		c := harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize("")
		var requests []int
		for range 20 {
			requests = append(requests, c.Post("process/read", harness.RPCParams{"processId": "p"}))
		}
		requests = append(requests, c.Post("process/start", harness.StartOf("p", harness.Program("sleep"), nil)))
		c.Shut()
		for _, request := range requests {
			if harness.ReplyTo(c.Record(), request) < 0 {
				t.Fatalf("request %d of %d was not answered", request, len(requests))
			}
		}
	}
}

// A lost connection leaves processes running, and their output is available after a resume.
func TestResume_LostConnection_LosesNothing(t *testing.T) {
	server := harness.NewServer(t, nil)
	c := harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize("")
	c.Start("p", harness.Shell("echo one; read line; echo two; read line; exit 7"), harness.RPCParams{"pipeStdin": true})
	c.AwaitOutput("p", "stdout", "one\n")
	c.Drop()

	again := harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize(c.Session)
	if again.Session != c.Session {
		t.Errorf("resuming %s gave the session %s", c.Session, again.Session)
	}
	if read := again.ReadProcess("p", harness.RPCParams{"afterSeq": 0}); len(read.Chunks) != 1 || read.NextSeq != 2 {
		t.Errorf("the output from before is %+v", read)
	}
	again.Write("p", "x\n", "accepted")
	again.AwaitOutput("p", "stdout", "two\n")
	if e := again.AwaitEvent("process/output", "p"); e.Seq != 2 {
		t.Errorf("the first notification after the resume has the number %d, want 2", e.Seq)
	}
	again.Write("p", "x\n", "accepted")
	if e := again.AwaitEvent("process/closed", "p"); e.Seq != 4 {
		t.Errorf("the end has the number %d, want 4", e.Seq)
	}
	if e := again.AwaitEvent("process/exited", "p"); e.ExitCode != 7 {
		t.Errorf("the exit code is %d, want 7", e.ExitCode)
	}
}

// The session and its processes end with the grace period.
func TestResume_AfterTheGrace_IsRefused(t *testing.T) {
	server := harness.NewServer(t, func(cfg *config.Config) { cfg.DefaultGrace = config.Duration(100 * time.Millisecond) })
	c := harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize("")
	c.Start("p", harness.Program("sleep"), nil)
	pid := pidOf(server, c, "p")
	c.Drop()
	c.AwaitDeath(pid)
	again := harness.WebsocketClient(t, server.Address(harness.WebsocketTransport))
	harness.Eventually(t, "the session is unknown", func() bool {
		answer := again.Call("initialize", harness.ResumeOf(c.Session))
		return answer.Error != nil && answer.Error.Code == -32600
	})
}

// While its connection responds, a session cannot be resumed elsewhere.
func TestResume_AttachedSession_IsRefused(t *testing.T) {
	server := harness.NewServer(t, nil)
	c := harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize("")
	other := harness.WebsocketClient(t, server.Address(harness.WebsocketTransport))
	refused := other.Refused("initialize", harness.ResumeOf(c.Session), -32010)
	if want := "session " + c.Session + " is already attached to another connection"; refused.Message != want {
		t.Errorf("the error is %q, want %q", refused.Message, want)
	}
	other.Initialize("")
	c.Start("p", []string{"/bin/true"}, nil)
	c.ExpectEnd("p", 0)
}

// A session whose connection does not respond can be resumed elsewhere.
func TestResume_DeadConnection_IsReplaced(t *testing.T) {
	harness.Waits(t)
	server := harness.NewServer(t, nil)
	link, err := harness.Upgrade(server.Address(harness.WebsocketTransport), nil)
	if err != nil {
		t.Fatal(err)
	}
	link.Silent = true
	c := harness.NewRPCClient(t, link, nil).Initialize("")
	c.Start("p", harness.Shell("echo one; read line; exit 3"), harness.RPCParams{"pipeStdin": true})
	c.AwaitOutput("p", "stdout", "one\n")
	again := harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize(c.Session)
	if read := again.ReadProcess("p", nil); len(read.Chunks) != 1 {
		t.Errorf("the output from before is %+v", read)
	}
	again.Write("p", "x\n", "accepted")
	if e := again.AwaitEvent("process/exited", "p"); e.ExitCode != 3 {
		t.Errorf("the exit code is %d, want 3", e.ExitCode)
	}
	c.AwaitEnd()
}

// The end of stdin ends a server on stdio and its processes. Earlier requests get their
// responses.
func TestStdioServer_EndOfStdin_EndsIt(t *testing.T) {
	server, c := harness.StdioClient(t)
	c.Initialize("")
	c.Start("p", harness.Shell("echo $$; exec sleep 1000"), nil)
	c.Until("the process says who it is", func(frames []harness.RPCFrame) bool { return harness.OutputOf(frames, "p", "stdout") != "" })
	var pid int32
	if _, err := fmt.Sscan(harness.OutputOf(c.Record(), "p", "stdout"), &pid); err != nil {
		t.Fatal(err)
	}
	poll := c.Post("process/read", harness.RPCParams{"processId": "p", "afterSeq": 1, "waitMs": 3_600_000})
	wait := c.Post("process/wait", harness.RPCParams{"processId": "p"})
	last := c.Post("process/read", harness.RPCParams{"processId": "p"})
	if err := c.Conn.(*harness.StdioConn).EndInput(); err != nil {
		t.Fatal(err)
	}
	c.AwaitEnd()
	for _, id := range []int{poll, wait, last} {
		if harness.ReplyTo(c.Record(), id) < 0 {
			t.Errorf("request %d was not answered; the server sent:\n%s", id, c.LastFrames())
		}
	}
	if code := server.Await(t); code != 0 {
		t.Errorf("the server exited with %d", code)
	}
	c.AwaitDeath(pid)
}
