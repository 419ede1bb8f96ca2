package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pane is a real terminal: a shell in tmux, for a person to type into and look
// at.
type pane struct {
	t      *testing.T
	socket string
}

func newPane(t *testing.T, columns, rows int) *pane {
	t.Helper()
	p := &pane{t: t, socket: filepath.Join(shortDir(t), "t")}
	// A prompt that says how the last command ended, and no history or line
	// editing that would draw something else.
	p.tmux("-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(columns), "-y", fmt.Sprint(rows),
		"env", "-i", "PATH="+os.Getenv("PATH"), "TERM=screen", "HOME=/", "PS1=local[$?]$ ", "GORACE=atexit_sleep_ms=0",
		"bash", "--norc", "--noprofile")
	t.Cleanup(func() { p.tmux("kill-server") })
	p.awaitLine("local[0]$")
	return p
}

func (p *pane) tmux(args ...string) string {
	p.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-S", p.socket}, args...)...)
	cmd.Env = append(os.Environ(), "TMUX=", "LC_ALL=C.UTF-8")
	said, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("tmux %s: %v: %s", args, err, said)
	}
	return string(said)
}

// enter types a line.
func (p *pane) enter(line string) {
	p.t.Helper()
	p.tmux("send-keys", "-l", line)
	p.key("Enter")
}

// key presses a key by its name in tmux.
func (p *pane) key(name string) {
	p.t.Helper()
	p.tmux("send-keys", name)
}

// screen is what a person sees.
func (p *pane) screen() string {
	p.t.Helper()
	return p.tmux("capture-pane", "-p")
}

// await waits until the screen shows something.
func (p *pane) await(what string, shows func(screen string) bool) {
	p.t.Helper()
	var screen string
	defer func() {
		if p.t.Failed() {
			p.t.Logf("the screen was:\n%s", screen)
		}
	}()
	eventually(p.t, "the terminal shows "+what, func() bool {
		screen = p.screen()
		return shows(screen)
	})
}

// awaitLine waits until the last line that is not empty is this one: a prompt,
// mostly, that waits for what is typed next.
func (p *pane) awaitLine(want string) {
	p.t.Helper()
	p.await(fmt.Sprintf("%q last", want), func(screen string) bool {
		lines := strings.Split(strings.TrimRight(screen, "\n "), "\n")
		return strings.TrimSpace(lines[len(lines)-1]) == want
	})
}

// awaitOutput waits for a line and then for the prompt.
func (p *pane) awaitOutput(line, prompt string) {
	p.t.Helper()
	p.await(fmt.Sprintf("the line %q", line), func(screen string) bool {
		return strings.Contains("\n"+screen, "\n"+line+"\n")
	})
	p.awaitLine(prompt)
}

// clear empties the screen, so that what comes is new.
func (p *pane) clear(prompt string) {
	p.t.Helper()
	p.enter("clear")
	p.await("nothing but a prompt", func(screen string) bool { return strings.TrimSpace(screen) == prompt })
}

// A person at a real terminal works in a shell on a server as in one here.
func TestAPersonAtATerminal(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		t.Run(string(d), func(t *testing.T) {
			p := newPane(t, 90, 27)
			settings := filepath.Join(shortDir(t), "stty")
			p.saveSettings(settings + ".before")
			p.clear("local[0]$")
			p.enter(execwire + " run --server " + server.urls[d] + " -t -i --cwd / -e 'PS1=remote[$?]$ ' -- bash --norc --noprofile")
			p.awaitLine("remote[0]$")
			p.tellSizes()
			p.interrupt()
			p.readInLess(t)
			p.clear("remote[0]$")
			p.key("C-d")
			p.await("the local prompt", func(screen string) bool {
				return strings.HasSuffix(strings.TrimSpace(screen), "local[0]$")
			})
			p.clear("local[0]$")
			p.saveSettings(settings + ".after")
			expectSameSettings(t, settings+".before", settings+".after")
		})
	}
}

// saveSettings has the local shell write the terminal's settings to a file. A
// prompt is there before and after: what tells that it is done is a line which is
// not what was typed.
func (p *pane) saveSettings(file string) {
	p.t.Helper()
	p.enter("stty -a > " + file + "; echo sa''ved")
	p.awaitOutput("saved", "local[0]$")
}

// tellSizes asks the remote terminal its size, before and after a change.
func (p *pane) tellSizes() {
	p.t.Helper()
	p.enter("stty size")
	p.awaitOutput("27 90", "remote[0]$")
	p.tmux("resize-window", "-x", "71", "-y", "19")
	// The change reaches the remote terminal when it does: bash asks anew at
	// each prompt.
	p.enter(`until [ "$(stty size)" = "19 71" ]; do sleep 0.02; done; echo "now $(stty size)"`)
	p.awaitOutput("now 19 71", "remote[0]$")
	p.clear("remote[0]$")
}

// interrupt presses Ctrl-C at a program that would take long.
func (p *pane) interrupt() {
	p.t.Helper()
	p.enter("sh -c 'echo sleeping; exec sleep 100'")
	p.awaitLine("sleeping")
	p.key("C-c")
	p.awaitLine("remote[130]$")
	p.enter("true")
	p.awaitLine("remote[0]$")
	p.clear("remote[0]$")
}

// readInLess has a full-screen program draw, move and give the screen back.
func (p *pane) readInLess(t *testing.T) {
	t.Helper()
	var text strings.Builder
	for line := range 200 {
		fmt.Fprintf(&text, "line %d of the file\n", line+1)
	}
	file := filepath.Join(shortDir(t), "file")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	p.enter("less " + file)
	p.await("the first page", func(screen string) bool {
		return strings.HasPrefix(screen, "line 1 of the file\nline 2 of") && !strings.Contains(screen, "remote[")
	})
	p.key("G")
	p.await("the last page", func(screen string) bool {
		return strings.Contains(screen, "\nline 200 of the file\n") && !strings.Contains(screen, "line 1 of")
	})
	p.key("q")
	p.await("the prompt and nothing of the file", func(screen string) bool {
		return strings.HasSuffix(strings.TrimSpace(screen), "remote[0]$") && !strings.Contains(screen, "of the file")
	})
}

// expectSameSettings compares what stty said, but for the size.
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

// A terminal is given back also when the connection is lost for good.
func TestATerminalIsGivenBackWhenTheServerIsGone(t *testing.T) {
	server := serve(t)
	p := newPane(t, 100, 24)
	settings := filepath.Join(shortDir(t), "stty")
	p.enter("stty -a > " + settings + ".before")
	p.awaitLine("local[0]$")
	p.clear("local[0]$")
	p.enter(execwire + " run --server " + server.urls[unixDoor] + " --grace 0 -t -i --cwd / -- sh -c 'echo ready; exec cat'")
	p.awaitLine("ready") // before that, keys are the local terminal's
	p.enter("typed")
	p.await("an echo and an answer", func(screen string) bool { return strings.Contains(screen, "\ntyped\ntyped\n") })
	server.killServer(t)
	p.await("the local prompt", func(screen string) bool {
		return strings.HasSuffix(strings.TrimSpace(screen), "local[125]$") && strings.Contains(screen, "connection lost")
	})
	p.enter("clear; stty -a > " + settings + ".after")
	p.awaitLine("local[0]$")
	expectSameSettings(t, settings+".before", settings+".after")
}

// A person leaves a shell on a server by keys and comes back to it, at another
// size, as it was.
func TestAPersonDetachesAndComesBack(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		t.Run(string(d), func(t *testing.T) {
			id := "shell" + string(d)
			server.detach(t, d, id, []string{"bash", "--norc", "--noprofile"}, "-t", "-i", "-e", "PS1=remote[$?]$ ", "-e", "TERM=screen")
			p := newPane(t, 100, 20)
			settings := filepath.Join(shortDir(t), "stty")
			p.saveSettings(settings + ".before")
			attach := execwire + " attach --server " + server.urls[d] + " -i " + id
			p.enter("clear; " + attach)
			p.awaitLine("remote[0]$")
			p.enter(`until [ "$(stty size)" = "20 100" ]; do sleep 0.02; done; kept=secret; echo "now $(stty size)"`)
			p.awaitOutput("now 20 100", "remote[0]$")
			p.leave(id)

			p.tmux("resize-window", "-x", "70", "-y", "15")
			p.clear("local[0]$")
			p.enter(attach)
			p.awaitLine("remote[0]$")
			p.enter(`until [ "$(stty size)" = "15 70" ]; do sleep 0.02; done; echo "$kept at $(stty size)"`)
			p.awaitOutput("secret at 15 70", "remote[0]$")
			// Half of the keys is a key like any other: the line before.
			p.clear("remote[0]$")
			p.enter("echo again")
			p.awaitOutput("again", "remote[0]$")
			p.key("C-p")
			p.key("C-p")
			p.key("C-n")
			p.await("the line before", func(screen string) bool { return strings.HasSuffix(strings.TrimSpace(screen), "remote[0]$ echo again") })
			p.key("C-c")
			p.awaitLine("remote[130]$")
			p.enter("exit 7")
			p.await("the local prompt", func(screen string) bool { return strings.HasSuffix(strings.TrimSpace(screen), "local[7]$") })
			p.enter("clear; stty -a > " + settings + ".after")
			p.awaitLine("local[0]$")
			expectSameSettings(t, settings+".before", settings+".after")
		})
	}
}

// leave detaches, and waits until that was said.
func (p *pane) leave(id string) {
	p.t.Helper()
	p.key("C-p")
	p.key("C-q")
	p.await("that it was left, and the local prompt", func(screen string) bool {
		return strings.Contains(screen, "detached from "+id) && strings.HasSuffix(strings.TrimSpace(screen), "local[0]$")
	})
}

// A full-screen program that was left draws itself for whoever comes back.
func TestAFullScreenProgramIsThereAgain(t *testing.T) {
	server := serve(t)
	file := filepath.Join(shortDir(t), "file")
	if err := os.WriteFile(file, []byte(strings.Repeat("a line\n", 50)+"the end\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server.detach(t, tcpDoor, "reader", []string{"less", file}, "-t", "-i", "-e", "TERM=screen")
	p := newPane(t, 100, 20)
	// When its size changes while it draws, less notices with the next key, which it
	// drops: here that is one that only draws.
	drawn := func() {
		for _, draw := range []func(){func() { p.key("r") }, func() {}} {
			if got := run(t, nil, server.remotely(tcpDoor, "wait", "--idle", "500ms", "reader")...); got.code != 0 {
				t.Errorf("less does not come to rest: %+v", got)
			}
			draw()
		}
	}
	attach := execwire + " attach --server " + server.urls[tcpDoor] + " -i reader"
	p.enter(attach)
	p.await("the first page", func(screen string) bool {
		return strings.HasPrefix(screen, "a line\n") && !strings.Contains(screen, "attach")
	})
	drawn()
	p.key("G")
	p.await("the last page", func(screen string) bool { return strings.Contains(screen, "\nthe end\n") })
	p.leave("reader")
	p.clear("local[0]$")
	p.enter(attach)
	p.await("some page", func(screen string) bool { return strings.Contains(screen, "a line\n") })
	drawn()
	p.await("the last page", func(screen string) bool { return strings.Contains(screen, "\nthe end\n") })
	p.key("q")
	p.await("the local prompt", func(screen string) bool { return strings.HasSuffix(strings.TrimSpace(screen), "local[0]$") })
}
