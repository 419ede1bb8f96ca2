package cli

import (
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// awaitOutput waits for a line and then for the prompt.
func awaitOutput(p *harness.Pane, line, prompt string) {
	p.T.Helper()
	p.Await(fmt.Sprintf("the line %q", line), func(screen string) bool {
		return strings.Contains("\n"+screen, "\n"+line+"\n")
	})
	p.AwaitLine(prompt)
}

// clear empties the screen before new output.
func clearPane(p *harness.Pane, prompt string) {
	p.T.Helper()
	p.Enter("clear")
	p.Await("nothing but a prompt", func(screen string) bool { return strings.TrimSpace(screen) == prompt })
}

// A shell on a server works at a real terminal like a local one.
func TestTerminal_Interactive(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		t.Run(string(d), func(t *testing.T) {
			p := harness.NewPane(t, 90, 27)
			settings := filepath.Join(harness.ShortDir(t), "stty")
			saveSettings(p, settings+".before")
			clearPane(p, "local[0]$")
			p.Enter(harness.Execwire + " run --server " + server.URLs[d] + " -t -i --cwd / -e 'PS1=remote[$?]$ ' -- bash --norc --noprofile")
			p.AwaitLine("remote[0]$")
			tellSizes(p)
			interrupt(p)
			readInLess(p, t)
			clearPane(p, "remote[0]$")
			p.Key("C-d")
			p.Await("the local prompt", func(screen string) bool {
				return strings.HasSuffix(strings.TrimSpace(screen), "local[0]$")
			})
			clearPane(p, "local[0]$")
			saveSettings(p, settings+".after")
			expectSameSettings(t, settings+".before", settings+".after")
		})
	}
}

// saveSettings makes the local shell write the settings of the terminal to a file. A prompt is
// there before and after, so it waits for a line that differs from the typed one.
func saveSettings(p *harness.Pane, file string) {
	p.T.Helper()
	p.Enter("stty -a > " + file + "; echo sa''ved")
	awaitOutput(p, "saved", "local[0]$")
}

// tellSizes prints the size of the remote terminal, before and after a change.
func tellSizes(p *harness.Pane) {
	p.T.Helper()
	p.Enter("stty size")
	awaitOutput(p, "27 90", "remote[0]$")
	p.Tmux("resize-window", "-x", "71", "-y", "19")
	// The change reaches the remote terminal when it does: bash asks anew at
	// each prompt.
	p.Enter(`until [ "$(stty size)" = "19 71" ]; do sleep 0.02; done; echo "now $(stty size)"`)
	awaitOutput(p, "now 19 71", "remote[0]$")
	clearPane(p, "remote[0]$")
}

// interrupt presses Ctrl-C during a long program.
func interrupt(p *harness.Pane) {
	p.T.Helper()
	p.Enter("sh -c 'echo sleeping; exec sleep 100'")
	p.AwaitLine("sleeping")
	p.Key("C-c")
	p.AwaitLine("remote[130]$")
	p.Enter("true")
	p.AwaitLine("remote[0]$")
	clearPane(p, "remote[0]$")
}

// readInLess runs a full-screen program that draws, scrolls and restores the screen.
func readInLess(p *harness.Pane, t *testing.T) {
	t.Helper()
	var text strings.Builder
	for line := range 200 {
		fmt.Fprintf(&text, "line %d of the file\n", line+1)
	}
	file := filepath.Join(harness.ShortDir(t), "file")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Enter("less " + file)
	p.Await("the first page", func(screen string) bool {
		return strings.HasPrefix(screen, "line 1 of the file\nline 2 of") && !strings.Contains(screen, "remote[")
	})
	p.Key("G")
	p.Await("the last page", func(screen string) bool {
		return strings.Contains(screen, "\nline 200 of the file\n") && !strings.Contains(screen, "line 1 of")
	})
	p.Key("q")
	p.Await("the prompt and nothing of the file", func(screen string) bool {
		return strings.HasSuffix(strings.TrimSpace(screen), "remote[0]$") && !strings.Contains(screen, "of the file")
	})
}

// expectSameSettings compares the output of stty, except for the size.
func expectSameSettings(t *testing.T, before, after string) {
	t.Helper()
	var said [2]string
	for i, name := range []string{before, after} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, said[i], _ = strings.Cut(string(text), "line = ")
	}
	if said[0] != said[1] || !strings.Contains(said[0], " icanon") || !strings.Contains(said[0], " echo ") {
		t.Errorf("the terminal was set to\n%s and is now set to\n%s", said[0], said[1])
	}
}

// The terminal is also restored when the connection is permanently lost.
func TestTerminal_ServerGone_IsRestored(t *testing.T) {
	server := harness.Serve(t)
	p := harness.NewPane(t, 100, 24)
	settings := filepath.Join(harness.ShortDir(t), "stty")
	p.Enter("stty -a > " + settings + ".before")
	p.AwaitLine("local[0]$")
	clearPane(p, "local[0]$")
	p.Enter(harness.Execwire + " run --server " + server.URLs[harness.UnixTransport] + " --grace 0 -t -i --cwd / -- sh -c 'echo ready; exec cat'")
	p.AwaitLine("ready") // before that, keys are the local terminal's
	p.Enter("typed")
	p.Await("an echo and an answer", func(screen string) bool { return strings.Contains(screen, "\ntyped\ntyped\n") })
	server.KillServer(t)
	p.Await("the local prompt", func(screen string) bool {
		return strings.HasSuffix(strings.TrimSpace(screen), "local[125]$") && strings.Contains(screen, "connection lost")
	})
	p.Enter("clear; stty -a > " + settings + ".after")
	p.AwaitLine("local[0]$")
	expectSameSettings(t, settings+".before", settings+".after")
}

// A user leaves a shell on a server, as run started it, by keys and attaches again, with another size, and
// finds it unchanged.
func TestTerminal_DetachAndAttach(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		t.Run(string(d), func(t *testing.T) {
			id := "shell" + string(d)
			p := harness.NewPane(t, 100, 20)
			settings := filepath.Join(harness.ShortDir(t), "stty")
			saveSettings(p, settings+".before")
			attach := harness.Execwire + " attach --server " + server.URLs[d] + " -i " + id
			p.Enter("clear; " + harness.Execwire + " run --server " + server.URLs[d] + " --id " + id + " -t -i -e 'PS1=remote[$?]$ ' -- bash --norc --noprofile")
			p.AwaitLine("remote[0]$")
			p.Enter(`until [ "$(stty size)" = "20 100" ]; do sleep 0.02; done; kept=secret; echo "now $(stty size)"`)
			awaitOutput(p, "now 20 100", "remote[0]$")
			leave(p, id)

			p.Tmux("resize-window", "-x", "70", "-y", "15")
			clearPane(p, "local[0]$")
			p.Enter(attach)
			p.AwaitLine("remote[0]$")
			p.Enter(`until [ "$(stty size)" = "15 70" ]; do sleep 0.02; done; echo "$kept at $(stty size)"`)
			awaitOutput(p, "secret at 15 70", "remote[0]$")
			// Half of the keys is a key like any other: the line before.
			clearPane(p, "remote[0]$")
			p.Enter("echo again")
			awaitOutput(p, "again", "remote[0]$")
			p.Key("C-p")
			p.Key("C-p")
			p.Key("C-n")
			p.Await("the line before", func(screen string) bool { return strings.HasSuffix(strings.TrimSpace(screen), "remote[0]$ echo again") })
			p.Key("C-u") // by C-c, bash may note the signal and go on reading the line until another key
			p.AwaitLine("remote[0]$")
			p.Enter("exit 7")
			p.Await("the local prompt", func(screen string) bool { return strings.HasSuffix(strings.TrimSpace(screen), "local[7]$") })
			p.Enter("clear; stty -a > " + settings + ".after")
			p.AwaitLine("local[0]$")
			expectSameSettings(t, settings+".before", settings+".after")
		})
	}
}

// leave detaches, and waits for the message.
func leave(p *harness.Pane, id string) {
	p.T.Helper()
	p.Key("C-p")
	p.Key("C-q")
	p.Await("that it was left, and the local prompt", func(screen string) bool {
		return strings.Contains(screen, "detached from "+id) && strings.HasSuffix(strings.TrimSpace(screen), "local[0]$")
	})
}

// A full-screen program redraws for a client that attaches.
func TestAttach_FullScreenProgram_IsRedrawn(t *testing.T) {
	server := harness.Serve(t)
	file := filepath.Join(harness.ShortDir(t), "file")
	if err := os.WriteFile(file, []byte(strings.Repeat("a line\n", 50)+"the end\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	detach(server, t, harness.TCPTransport, "reader", []string{"less", file}, "-t", "-i", "-e", "TERM=screen")
	p := harness.NewPane(t, 100, 20)
	// When its size changes while it draws, less notices with the next key, which it
	// drops: here that is one that only draws.
	drawn := func() {
		for _, draw := range []func(){func() { p.Key("r") }, func() {}} {
			if got := harness.Run(t, nil, server.Remotely(harness.TCPTransport, "wait", "--idle", "500ms", "reader")...); got.Code != 0 {
				t.Errorf("less does not come to rest: %+v", got)
			}
			draw()
		}
	}
	attach := harness.Execwire + " attach --server " + server.URLs[harness.TCPTransport] + " -i reader"
	p.Enter(attach)
	p.Await("the first page", func(screen string) bool {
		return strings.HasPrefix(screen, "a line\n") && !strings.Contains(screen, "attach")
	})
	drawn()
	p.Key("G")
	p.Await("the last page", func(screen string) bool { return strings.Contains(screen, "\nthe end\n") })
	leave(p, "reader")
	clearPane(p, "local[0]$")
	p.Enter(attach)
	p.Await("some page", func(screen string) bool { return strings.Contains(screen, "a line\n") })
	drawn()
	p.Await("the last page", func(screen string) bool { return strings.Contains(screen, "\nthe end\n") })
	p.Key("q")
	p.Await("the local prompt", func(screen string) bool { return strings.HasSuffix(strings.TrimSpace(screen), "local[0]$") })
}

// Two clients of a full-screen program see the same, the one that owns it and one that does not; so does
// the owner after its connection was cut, for a moment or for longer, and one that attaches after the terminal of the owner is gone.
// It is what the screen of the server has.
func TestAttach_FullScreenProgram_IsTheSameForAll(t *testing.T) {
	harness.Waits(t)
	server := harness.Serve(t)
	file := filepath.Join(harness.ShortDir(t), "file")
	if err := os.WriteFile(file, []byte(strings.Repeat("a 漢字 line\n", 50)+"the end\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	atTop := func(screen string) bool {
		return strings.HasPrefix(screen, "a 漢字 line\n") && !strings.Contains(screen, "the end")
	}
	atEnd := func(screen string) bool { return strings.Contains(screen, "\nthe end\n") }
	for _, program := range []struct {
		argv      []string
		first     func(screen string) bool
		key       string
		then      func(screen string) bool
		isDynamic bool // it draws without a key
	}{
		{argv: []string{"vi", "-u", "NONE", "-n", file}, first: atTop, key: "G", then: atEnd},
		{argv: []string{"less", file}, first: atTop, key: "G", then: atEnd},
		{argv: []string{"htop"}, first: func(screen string) bool { return strings.Contains(screen, "F10Quit") }, key: "F5",
			then: func(screen string) bool { return strings.Contains(screen, "F5List") }, isDynamic: true},
	} {
		t.Run(program.argv[0], func(t *testing.T) {
			harness.Waits(t)
			id := program.argv[0]
			detach(server, t, harness.UnixTransport, id, program.argv, "-t", "-i", "-e", "TERM=screen-256color", "-e", "LC_ALL=C.UTF-8", "-e", "HOME=/nonexistent")
			expectSame := func(p, other *harness.Pane, shows func(screen string) bool) {
				t.Helper()
				p.Await("what the key draws", shows)
				if program.isDynamic { // it stands still while its screens are compared
					stopped := harness.Run(t, nil, server.Remotely(harness.UnixTransport, "kill", "-STOP", id)...)
					defer harness.Run(t, nil, server.Remotely(harness.UnixTransport, "kill", "-CONT", id)...)
					if stopped.Code != 0 {
						t.Errorf("stopping %s: %+v", id, stopped)
					}
				}
				var want string
				harness.Eventually(t, "both show the same as the server", func() bool {
					want = strings.TrimSpace(harness.Run(t, nil, server.Remotely(harness.UnixTransport, "screen", id)...).Stdout)
					return want == strings.TrimSpace(p.Tmux("capture-pane", "-p")) && want == strings.TrimSpace(other.Tmux("capture-pane", "-p"))
				})
				if !shows(want + "\n") {
					t.Errorf("the server shows %q", want)
				}
			}
			wire := harness.NewProxy(t, "unix", server.Address(harness.UnixTransport))
			owner, other := harness.NewPane(t, 80, 20), harness.NewPane(t, 90, 24)
			owner.Enter(harness.Execwire + " attach --server " + wire.URL() + " -i " + id)
			other.Enter(strings.Join(append([]string{harness.Execwire}, server.Remotely(harness.UnixTransport, "attach", "--read-only", id)...), " "))
			expectSame(owner, other, program.first)
			if cut := wire.Cut(); cut == 0 {
				t.Error("no connection was cut")
			}
			owner.Key(program.key)
			expectSame(owner, other, program.then)
			wire.SetStalled(true)
			wire.Cut()
			owner.Await("that the connection is lost", func(screen string) bool { return strings.Contains(screen, "connection lost") })
			wire.SetStalled(false)
			expectSame(owner, other, program.then)

			owner.Tmux("respawn-pane", "-k")
			again := harness.NewPane(t, 80, 20)
			again.Enter(strings.Join(append([]string{harness.Execwire}, server.Remotely(harness.UnixTransport, "attach", "-i", id)...), " "))
			expectSame(again, other, program.then)
			leave(again, id)
			again.Await("nothing of the program", func(screen string) bool { return !program.then(screen) })
			other.Key("q")
			other.AwaitLine("local[0]$")
			harness.Run(t, nil, server.Remotely(harness.UnixTransport, "kill", "-9", id)...)
			got := harness.Run(t, nil, server.Remotely(harness.UnixTransport, "wait", "--screen", "never", id)...)
			if got.Code != 1 || !strings.Contains(got.Stderr, id+" closed first") {
				t.Errorf("waiting for what a killed process never shows: %+v", got)
			}
		})
	}
}
