package integration

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/client"
)

func TestAttachBehavesLikeTheProcess(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		id := string(d)
		server.detach(t, d, id, shell("echo before; cat; echo apart >&2; exit 5"), "-i")
		server.expectCommand(t, d, result{stdout: "before\n"}, "wait", "--pattern", "before", id)
		// By keys it is left alone, with what was typed before them.
		got := newCommand(server.remotely(d, "attach", "-i", id)...).complete(t, strings.NewReader("typed \x10\x11not this"))
		if got.code != 0 || !strings.Contains(got.stderr, "detached from "+id) || !strings.HasPrefix("before\ntyped ", got.stdout) {
			t.Fatalf("detaching: %+v", got)
		}
		got = newCommand(server.remotely(d, "attach", "-i", id)...).complete(t, strings.NewReader("and more"))
		if want := (result{code: 5, stdout: "before\ntyped and more", stderr: "apart\n"}); got != want {
			t.Errorf("attached again: %+v, want %+v", got, want)
		}
		server.expectCommand(t, d, result{code: 5, stdout: "typed and more", stderr: "apart\n"}, "attach", "--since-seq", "1", id)
		got = run(t, nil, server.remotely(d, "attach", "nobody")...)
		if got.code != 125 || !strings.Contains(got.stderr, "execwire ps -a") {
			t.Errorf("attached to nobody: %+v", got)
		}
	}
}

// A newer owner is told of to the older one; a signal is passed on.
func TestAttachTakesOverAndPassesSignals(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		id := string(d)
		server.detach(t, d, id, shell("trap 'echo got it; exit 6' TERM; echo ready; while :; do sleep 0.02; done"))
		first := newCommand(server.remotely(d, "attach", id)...)
		var said lockedBuffer
		first.Stdout = &said
		first.launch(t)
		eventually(t, "the first owner", func() bool { return said.String() == "ready\n" })
		second := newCommand(server.remotely(d, "attach", id)...)
		var saidSecond lockedBuffer
		second.Stdout = &saidSecond
		second.launch(t)
		if code := first.await(t); code != 125 || !strings.Contains(first.errors.String(), "taken "+id+" over") {
			t.Errorf("the first ended with %d and %q", code, first.errors.String())
		}
		eventually(t, "the second owner", func() bool { return saidSecond.String() == "ready\n" })
		second.send(t, unix.SIGTERM)
		if code := second.await(t); code != 6 || saidSecond.String() != "ready\ngot it\n" {
			t.Errorf("the second ended with %d and %q", code, saidSecond.String())
		}
	}
}

// A terminal that is closed takes attach with it, and not the process.
func TestAttachLeavesTheProcessWhenItsTerminalIsGone(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		id := string(d)
		server.detach(t, d, id, shell("trap 'exit 1' HUP; echo ready; while :; do sleep 0.02; done"))
		attached := newCommand(server.remotely(d, "attach", "--grace", "0", id)...)
		var said lockedBuffer
		attached.Stdout = &said
		attached.launch(t)
		eventually(t, "the owner", func() bool { return said.String() == "ready\n" })
		attached.send(t, unix.SIGHUP)
		if code := attached.await(t); code != 0 || !strings.Contains(attached.errors.String(), "detached from "+id) {
			t.Errorf("it ended with %d and %q", code, attached.errors.String())
		}
		server.expectCommand(t, d, result{code: 124, stderr: "execwire: " + id + ": the timeout is over\n"}, "wait", "--timeout", "50ms", id)
	}
}

func TestSessionsAreListedGrantedAndClosed(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		c, err := client.Dial(testContext(t), server.urls[d])
		if err != nil {
			t.Fatal(err)
		}
		session, err := c.AttachSession(testContext(t), client.SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		id := session.ID()
		t.Cleanup(func() {
			_ = session.Detach(testContext(t))
			_ = c.Close()
		})
		server.expectCommand(t, d, result{stdout: "lives\n"}, "run", "--detach", "--session", id, "--id", "lives", "--", "sleep", "1000")
		server.expectCommand(t, d, result{stdout: "lives\n"}, "ps", "--session", id, "-q")
		server.expectCommand(t, d, result{}, "ps", "-q")
		got := run(t, nil, server.remotely(d, "sessions")...)
		if !strings.HasPrefix(got.stdout, "ID\tSTATE\tPROCESSES\t") || !strings.Contains(got.stdout, "\n"+id+"\tattached\t1\t") {
			t.Errorf("sessions: %+v", got)
		}
		for _, step := range []struct{ access, shown string }{{"view", `"grants":{"uid:99":"view"}`}, {"write", `"grants":{"uid:99":"write"}`}, {"none", ""}} {
			server.expectCommand(t, d, result{}, "sessions", "grant", id, "uid:99", step.access)
			got = run(t, nil, server.remotely(d, "sessions", "--json")...)
			if !strings.Contains(got.stdout, `"id":"`+id+`","attached":true,"processes":1,`) || !strings.Contains(got.stdout, step.shown) ||
				strings.Contains(got.stdout, "grants") != (step.shown != "") {
				t.Errorf("granted for %s: %+v", step.access, got)
			}
		}
		server.expectCommand(t, d, result{}, "sessions", "close", id)
		got = run(t, nil, server.remotely(d, "ps", "--session", id)...)
		if got.code != 125 || !strings.Contains(got.stderr, "execwire sessions") {
			t.Errorf("ps of a closed session: %+v", got)
		}
		server.expectCommand(t, d, result{stdout: "ID\tSTATE\tPROCESSES\tAGE\tENDS IN\tPRINCIPAL\n"}, "sessions")
	}
}
