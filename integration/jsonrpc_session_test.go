package integration

import (
	"fmt"
	"testing"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
)

// pidOf asks the core for the number of a process of the client's session.
func (s *server) pidOf(c *rpcClient, id string) int32 {
	c.Helper()
	told, err := execwirev1.NewProcessServiceClient(s.core(c)).GetProcess(testContext(c),
		&execwirev1.GetProcessRequest{SessionId: c.session, ProcessId: id})
	if err != nil {
		c.Fatal(err)
	}
	return told.GetProcess().GetPid()
}

func (c *rpcClient) awaitDeath(pid int32) {
	c.Helper()
	eventually(c, fmt.Sprintf("process %d is gone", pid), func() bool { return !alive(pid) })
}

// resumeOf take up a session.
func resumeOf(session string) rpcParams {
	return rpcParams{"clientName": "integration", "resumeSessionId": session}
}

// A normal close ends the session and its processes, whatever the grace.
func TestANormalCloseEndsTheSession(t *testing.T) {
	server := newServer(t, func(cfg *config.Config) { cfg.DefaultGrace = config.Duration(time.Hour) })
	c := websocketClient(t, server.address(websocketDoor)).initialize("")
	c.start("p", program("sleep"), nil)
	pid := server.pidOf(c, "p")
	c.shut()
	c.awaitDeath(pid)
	again := websocketClient(t, server.address(websocketDoor))
	again.refused("initialize", resumeOf(c.session), -32600)
	again.initialize("") // a refused handshake may be repeated
}

// What was asked before a normal close is done, and answered.
func TestWhatWasAskedBeforeANormalCloseIsAnswered(t *testing.T) {
	server := newServer(t, nil)
	for range 20 {
		c := websocketClient(t, server.address(websocketDoor)).initialize("")
		var requests []int
		for range 20 {
			requests = append(requests, c.post("process/read", rpcParams{"processId": "p"}))
		}
		requests = append(requests, c.post("process/start", startOf("p", program("sleep"), nil)))
		c.shut()
		for _, request := range requests {
			if replyTo(c.record(), request) < 0 {
				t.Fatalf("request %d of %d was not answered", request, len(requests))
			}
		}
	}
}

// A lost connection leaves processes running, and what they say is there for
// who resumes.
func TestALostConnectionIsResumed(t *testing.T) {
	server := newServer(t, nil)
	c := websocketClient(t, server.address(websocketDoor)).initialize("")
	c.start("p", shell("echo one; read line; echo two; read line; exit 7"), rpcParams{"pipeStdin": true})
	c.awaitOutput("p", "stdout", "one\n")
	c.drop()

	again := websocketClient(t, server.address(websocketDoor)).initialize(c.session)
	if again.session != c.session {
		t.Errorf("resuming %s gave the session %s", c.session, again.session)
	}
	if read := again.readProcess("p", rpcParams{"afterSeq": 0}); len(read.Chunks) != 1 || read.NextSeq != 2 {
		t.Errorf("what was said before is %+v", read)
	}
	again.write("p", "x\n", "accepted")
	again.awaitOutput("p", "stdout", "two\n")
	if e := again.awaitEvent("process/output", "p"); e.Seq != 2 {
		t.Errorf("the first notification after the resume has the number %d, want 2", e.Seq)
	}
	again.write("p", "x\n", "accepted")
	if e := again.awaitEvent("process/closed", "p"); e.Seq != 4 {
		t.Errorf("the end has the number %d, want 4", e.Seq)
	}
	if e := again.awaitEvent("process/exited", "p"); e.ExitCode != 7 {
		t.Errorf("the exit code is %d, want 7", e.ExitCode)
	}
}

// The session and its processes end with the grace.
func TestTheGraceOfALostConnectionEnds(t *testing.T) {
	server := newServer(t, func(cfg *config.Config) { cfg.DefaultGrace = config.Duration(100 * time.Millisecond) })
	c := websocketClient(t, server.address(websocketDoor)).initialize("")
	c.start("p", program("sleep"), nil)
	pid := server.pidOf(c, "p")
	c.drop()
	c.awaitDeath(pid)
	again := websocketClient(t, server.address(websocketDoor))
	eventually(t, "the session is unknown", func() bool {
		answer := again.call("initialize", resumeOf(c.session))
		return answer.Error != nil && answer.Error.Code == -32600
	})
}

// While its connection answers, a session is not given to another.
func TestAnAttachedSessionIsRefused(t *testing.T) {
	server := newServer(t, nil)
	c := websocketClient(t, server.address(websocketDoor)).initialize("")
	other := websocketClient(t, server.address(websocketDoor))
	refused := other.refused("initialize", resumeOf(c.session), -32010)
	if want := "session " + c.session + " is already attached to another connection"; refused.Message != want {
		t.Errorf("the refusal says %q, want %q", refused.Message, want)
	}
	other.initialize("")
	c.start("p", []string{"/bin/true"}, nil)
	c.expectEnd("p", 0)
}

// A connection that does not answer loses its session to who asks for it.
func TestADeadConnectionIsTakenOver(t *testing.T) {
	waits(t)
	server := newServer(t, nil)
	link, err := upgrade(server.address(websocketDoor), nil)
	if err != nil {
		t.Fatal(err)
	}
	link.silent = true
	c := newRPCClient(t, link, nil).initialize("")
	c.start("p", shell("echo one; read line; exit 3"), rpcParams{"pipeStdin": true})
	c.awaitOutput("p", "stdout", "one\n")
	again := websocketClient(t, server.address(websocketDoor)).initialize(c.session)
	if read := again.readProcess("p", nil); len(read.Chunks) != 1 {
		t.Errorf("what was said before is %+v", read)
	}
	again.write("p", "x\n", "accepted")
	if e := again.awaitEvent("process/exited", "p"); e.ExitCode != 3 {
		t.Errorf("the exit code is %d, want 3", e.ExitCode)
	}
	c.awaitEnd()
}

// The end of stdin ends a server on stdio and its processes; what was asked
// before is answered, and not waited for.
func TestTheEndOfStdinEndsAServerOnStdio(t *testing.T) {
	server, c := stdioClient(t)
	c.initialize("")
	c.start("p", shell("echo $$; exec sleep 1000"), nil)
	c.until("the process says who it is", func(frames []rpcFrame) bool { return outputOf(frames, "p", "stdout") != "" })
	var pid int32
	if _, err := fmt.Sscan(outputOf(c.record(), "p", "stdout"), &pid); err != nil {
		t.Fatal(err)
	}
	poll := c.post("process/read", rpcParams{"processId": "p", "afterSeq": 1, "waitMs": 3_600_000})
	wait := c.post("process/wait", rpcParams{"processId": "p"})
	last := c.post("process/read", rpcParams{"processId": "p"})
	if err := c.link.(*stdioLink).endInput(); err != nil {
		t.Fatal(err)
	}
	c.awaitEnd()
	for _, id := range []int{poll, wait, last} {
		if replyTo(c.record(), id) < 0 {
			t.Errorf("request %d was not answered; the server said:\n%s", id, c.said())
		}
	}
	if code := server.await(t); code != 0 {
		t.Errorf("the server exited with %d", code)
	}
	c.awaitDeath(pid)
}
