package cli

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/integration/harness"
)

func TestAttach_BehavesLikeTheProcess(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		id := string(d)
		detach(server, t, d, id, harness.Shell("echo before; cat; echo apart >&2; exit 5"), "-i")
		server.ExpectCommand(t, d, harness.Result{Stdout: "before\n"}, "wait", "--pattern", "before", id)
		// By keys it is left alone, with what was typed before them.
		got := harness.NewCommand(server.Remotely(d, "attach", "-i", id)...).Complete(t, strings.NewReader("typed \x10\x11not this"))
		if got.Code != 0 || !strings.Contains(got.Stderr, "detached from "+id) || !strings.HasPrefix("before\ntyped ", got.Stdout) {
			t.Fatalf("detaching: %+v", got)
		}
		got = harness.NewCommand(server.Remotely(d, "attach", "-i", id)...).Complete(t, strings.NewReader("and more"))
		if want := (harness.Result{Code: 5, Stdout: "before\ntyped and more", Stderr: "apart\n"}); got != want {
			t.Errorf("attached again: %+v, want %+v", got, want)
		}
		server.ExpectCommand(t, d, harness.Result{Code: 5, Stdout: "typed and more", Stderr: "apart\n"}, "attach", "--since-seq", "1", id)
		got = harness.Run(t, nil, server.Remotely(d, "attach", "nobody")...)
		if got.Code != 125 || !strings.Contains(got.Stderr, "execwire ps -a") {
			t.Errorf("attached to an unknown process: %+v", got)
		}
	}
}

// The older owner reports the newer one; a signal is forwarded.
func TestAttach_TakesOverAndForwardsSignals(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		id := string(d)
		detach(server, t, d, id, harness.Shell("trap 'echo got it; exit 6' TERM; echo ready; while :; do sleep 0.02; done"))
		first := harness.NewCommand(server.Remotely(d, "attach", id)...)
		var said harness.LockedBuffer
		first.Stdout = &said
		first.Launch(t)
		harness.Eventually(t, "the first owner", func() bool { return said.String() == "ready\n" })
		second := harness.NewCommand(server.Remotely(d, "attach", id)...)
		var saidSecond harness.LockedBuffer
		second.Stdout = &saidSecond
		second.Launch(t)
		if code := first.Await(t); code != 125 || !strings.Contains(first.Errors.String(), "took over "+id) {
			t.Errorf("the first ended with %d and %q", code, first.Errors.String())
		}
		harness.Eventually(t, "the second owner", func() bool { return saidSecond.String() == "ready\n" })
		second.Send(t, unix.SIGTERM)
		if code := second.Await(t); code != 6 || saidSecond.String() != "ready\ngot it\n" {
			t.Errorf("the second ended with %d and %q", code, saidSecond.String())
		}
	}
}

// Closing the terminal ends attach but not the process.
func TestAttach_TerminalGone_LeavesTheProcess(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		id := string(d)
		detach(server, t, d, id, harness.Shell("trap 'exit 1' HUP; echo ready; while :; do sleep 0.02; done"))
		attached := harness.NewCommand(server.Remotely(d, "attach", "--grace", "0", id)...)
		var said harness.LockedBuffer
		attached.Stdout = &said
		attached.Launch(t)
		harness.Eventually(t, "the owner", func() bool { return said.String() == "ready\n" })
		attached.Send(t, unix.SIGHUP)
		if code := attached.Await(t); code != 0 || !strings.Contains(attached.Errors.String(), "detached from "+id) {
			t.Errorf("it ended with %d and %q", code, attached.Errors.String())
		}
		server.ExpectCommand(t, d, harness.Result{Code: 124, Stderr: "execwire: " + id + ": timed out\n"}, "wait", "--timeout", "50ms", id)
	}
}

func TestSessionCommands(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		c, err := client.Dial(harness.Context(t), server.URLs[d])
		if err != nil {
			t.Fatal(err)
		}
		session, err := c.AttachSession(harness.Context(t), client.SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		id := session.ID()
		t.Cleanup(func() {
			_ = session.Detach(harness.Context(t))
			_ = c.Close()
		})
		server.ExpectCommand(t, d, harness.Result{Stdout: "lives\n"}, "run", "--detach", "--session", id, "--id", "lives", "--", "sleep", "1000")
		server.ExpectCommand(t, d, harness.Result{Stdout: "lives\n"}, "ps", "--session", id, "-q")
		server.ExpectCommand(t, d, harness.Result{}, "ps", "-q")
		got := harness.Run(t, nil, server.Remotely(d, "sessions")...)
		if !strings.HasPrefix(got.Stdout, "ID\tSTATE\tPROCESSES\t") || !strings.Contains(got.Stdout, "\n"+id+"\tattached\t1\t") {
			t.Errorf("sessions: %+v", got)
		}
		for _, step := range []struct{ access, shown string }{{"view", `"grants":{"uid:99":"view"}`}, {"write", `"grants":{"uid:99":"write"}`}, {"none", ""}} {
			server.ExpectCommand(t, d, harness.Result{}, "sessions", "grant", id, "uid:99", step.access)
			got = harness.Run(t, nil, server.Remotely(d, "sessions", "--json")...)
			if !strings.Contains(got.Stdout, `"id":"`+id+`","attached":true,"processes":1,`) || !strings.Contains(got.Stdout, step.shown) ||
				strings.Contains(got.Stdout, "grants") != (step.shown != "") {
				t.Errorf("granted for %s: %+v", step.access, got)
			}
		}
		server.ExpectCommand(t, d, harness.Result{}, "sessions", "close", id)
		got = harness.Run(t, nil, server.Remotely(d, "ps", "--session", id)...)
		if got.Code != 125 || !strings.Contains(got.Stderr, "execwire sessions") {
			t.Errorf("ps of a closed session: %+v", got)
		}
		server.ExpectCommand(t, d, harness.Result{Stdout: "ID\tSTATE\tPROCESSES\tAGE\tENDS IN\tPRINCIPAL\n"}, "sessions")
	}
}
