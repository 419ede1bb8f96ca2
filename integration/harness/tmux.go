package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Pane is a shell in tmux, which a test types into and whose screen it reads.
type Pane struct {
	T      *testing.T
	socket string
}

// NewPane starts tmux with a shell in one pane.
func NewPane(t *testing.T, columns, rows int) *Pane {
	t.Helper()
	p := &Pane{T: t, socket: filepath.Join(ShortDir(t), "t")}
	// A prompt that says how the last command ended, and no history or line
	// editing that would draw something else.
	p.Tmux("-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(columns), "-y", fmt.Sprint(rows),
		"env", "-i", "PATH="+os.Getenv("PATH"), "TERM=screen", "HOME=/", "PS1=local[$?]$ ", "GORACE=atexit_sleep_ms=0",
		"bash", "--norc", "--noprofile")
	t.Cleanup(func() { p.Tmux("kill-server") })
	p.AwaitLine("local[0]$")
	return p
}

// Tmux runs a command of tmux and returns what it prints.
func (p *Pane) Tmux(args ...string) string {
	p.T.Helper()
	cmd := exec.Command("tmux", append([]string{"-S", p.socket}, args...)...)
	cmd.Env = append(os.Environ(), "TMUX=", "LC_ALL=C.UTF-8")
	output, err := cmd.CombinedOutput()
	if err != nil {
		p.T.Fatalf("tmux %s: %v: %s", args, err, output)
	}
	return string(output)
}

// Enter types a line.
func (p *Pane) Enter(line string) {
	p.T.Helper()
	p.Tmux("send-keys", "-l", line)
	p.Key("Enter")
}

// Key presses a key by its name in tmux.
func (p *Pane) Key(name string) {
	p.T.Helper()
	p.Tmux("send-keys", name)
}

// screen returns the content of the screen.
func (p *Pane) screen() string {
	p.T.Helper()
	return p.Tmux("capture-pane", "-p")
}

// Await waits until the screen shows something.
func (p *Pane) Await(what string, shows func(screen string) bool) {
	p.T.Helper()
	var screen string
	defer func() {
		if p.T.Failed() {
			p.T.Logf("the screen was:\n%s", screen)
		}
	}()
	Eventually(p.T, "the terminal shows "+what, func() bool {
		screen = p.screen()
		return shows(screen)
	})
}

// AwaitLine waits until this is the last line that is not empty, mostly a prompt.
func (p *Pane) AwaitLine(want string) {
	p.T.Helper()
	p.Await(fmt.Sprintf("%q last", want), func(screen string) bool {
		lines := strings.Split(strings.TrimRight(screen, "\n "), "\n")
		return strings.TrimSpace(lines[len(lines)-1]) == want
	})
}
