package sandbox

import (
	"bufio"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// patience is more than anything here takes on a machine with much to do.
const patience = time.Minute

// TestTerminal_JobControlWorks types into a shell that has a job in the foreground of its terminal.
func TestTerminal_JobControlWorks(t *testing.T) {
	eachBackend(t, func(t *testing.T, sandboxes *Sandboxes, plan *Plan) {
		master, slave, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer master.Close()
		tty := int(slave.Fd())
		program := Program{
			Path: "/bin/bash", Argv: []string{"bash", "--norc", "--noediting", "-i"}, Env: []string{"PATH=" + os.Getenv("PATH"), "PS1=ready$ "},
			Dir: "/", Files: []int{tty, tty, tty}, Terminal: 0,
		}
		pid, release, err := launchProgram(program, sandboxes, plan)
		_ = slave.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		defer time.AfterFunc(patience, func() { _ = unix.Kill(-pid, unix.SIGKILL) }).Stop() // ends what is awaited
		screen := bufio.NewReader(master)
		var seen strings.Builder
		await := func(text string) {
			t.Helper()
			for from := seen.Len(); !strings.HasSuffix(seen.String()[from:], text); {
				c, err := screen.ReadByte()
				if err != nil {
					t.Fatalf("%v after %q, want %q", err, seen.String(), text)
				}
				seen.WriteByte(c)
			}
		}
		enter := func(text string) {
			t.Helper()
			if _, err := io.WriteString(master, text); err != nil {
				t.Fatal(err)
			}
		}
		await("ready$ ")
		enter("stty noflsh\n") // otherwise ^C takes with it what was said just before and after
		await("ready$ ")
		enter("cat\nhello\n")
		await("hello\r\n")
		await("hello\r\n") // the first is the terminal's echo, the second is cat's: it has the foreground
		enter("\x03")
		await("ready$ ")
		enter("echo status $?; jobs -l; exit 9\n")
		await("status 130\r\n")
		if status := reap(pid); !status.Exited() || status.ExitStatus() != 9 {
			t.Errorf("the shell ended with %#x", status)
		}
		if strings.Contains(seen.String(), "no job control") {
			t.Errorf("the shell said %q", seen.String())
		}
	})
}
