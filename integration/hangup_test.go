package integration

import (
	"bufio"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// SIGHUP ends none of our programs that serve, and no process.
func TestServers_SIGHUP_IsLoggedAndIgnored(t *testing.T) {
	waits(t)
	server := serve(t)
	gateway := newCommand("gateway", "--listen", "ws://127.0.0.1:0", "--upstream", server.urls[unixDoor])
	gateway.listen(t, 1)
	forward := newCommand("forward", "--listen", "grpc://127.0.0.1:0", "--server", server.urls[unixDoor])
	forward.listen(t, 1)
	hub := newHub(t, nil)
	before := server.start(t, shell("exec sleep 1000")).GetProcessId()
	for _, tc := range []struct {
		name string
		c    *command
		pid  int
	}{
		{"the server", server, server.serverPID(t)},
		{"its guardian", server, server.Process.Pid},
		{"the gateway", gateway, gateway.Process.Pid},
		{"the forward", forward, forward.Process.Pid},
		{"the hub", hub, hub.Process.Pid},
	} {
		logged := func() int { return strings.Count(tc.c.errors.String(), "SIGHUP is ignored") }
		was := logged()
		if err := unix.Kill(tc.pid, unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually(t, tc.name+" has logged the signal", func() bool { return logged() > was })
	}
	for _, args := range [][]string{
		gateway.through(websocketDoor, "--", "echo", "served"), forward.through(tcpDoor, "--", "echo", "served"),
	} {
		if got := run(t, nil, args...); got != (result{stdout: "served\n"}) {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if hub.ProcessState != nil {
		t.Error("the hub has ended")
	}
	described, err := remote(t, server, unixDoor).GetProcess(testContext(t), &execwirev1.GetProcessRequest{ProcessId: before})
	if err != nil || described.GetProcess().GetState() != execwirev1.ProcessState_PROCESS_STATE_RUNNING {
		t.Errorf("the process of before is %v, %v", described, err)
	}
}

// A server of stdio ignores it, too: its client ends it by closing stdin.
func TestStdioServer_SIGHUP_IsIgnored(t *testing.T) {
	waits(t)
	c := newCommand("serve", "--listen", "stdio")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.launch(t)
	if _, err := fmt.Fprintln(in, `{"id":1,"method":"initialize","params":{"clientName":"me"}}`); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(c.serverPID(t), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the signal is logged", func() bool { return strings.Contains(c.errors.String(), "SIGHUP is ignored") })
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if code := c.await(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// What nohup has the server ignore, a process does not.
func TestProcess_OfAServerUnderNohup_HeedsSIGHUP(t *testing.T) {
	c := prepare(exec.Command("/bin/sh", "-c", `trap "" HUP; exec "$0" "$@"`, execwire, "serve", "--listen", "grpc://127.0.0.1:0"))
	c.listen(t, 1)
	got := run(t, nil, c.through(tcpDoor, "--", "sh", "-c", "kill -HUP $$; echo survived")...)
	if got != (result{code: 128 + 1}) {
		t.Errorf("a process that hangs up itself ended with %+v", got)
	}
}
