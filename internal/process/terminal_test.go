package process

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/screen"
	"github.com/execwire/execwire/internal/testproc"
)

func onTerminal(spec Spec, rows, cols uint16) Spec {
	spec.Terminal = &WindowSize{Rows: rows, Cols: cols}
	return spec
}

func TestTerminal_IsControllingTerminal(t *testing.T) {
	output, _ := run(t, onTerminal(program("status"), 0, 0))
	got := decode[testproc.Status](t, output.terminal)
	if !got.Terminal || !got.ControllingTerminal || got.SID != got.PID || got.PGID != got.PID || got.Foreground != got.PID {
		t.Errorf("%+v", got)
	}
	if len(got.Descriptors) != 3 || len(got.NonBlocking) != 0 || !strings.HasPrefix(got.Descriptors[0], "/dev/pts/") ||
		got.Descriptors[1] != got.Descriptors[0] || got.Descriptors[2] != got.Descriptors[0] {
		t.Errorf("descriptors %v, non-blocking %v", got.Descriptors, got.NonBlocking)
	}
	if got.Rows != 24 || got.Cols != 80 {
		t.Errorf("size %dx%d", got.Rows, got.Cols)
	}
}

func TestTerminal_Resize(t *testing.T) {
	p := start(t, onTerminal(program("winsize"), 30, 0))
	if size := p.WindowSize(); size != (WindowSize{30, 80}) {
		t.Errorf("size %v", size)
	}
	l := readLog(t, p)
	l.until("30x80\r\n")
	if err := p.Resize(WindowSize{50, 132}); err != nil {
		t.Fatal(err)
	}
	if size := p.WindowSize(); size != (WindowSize{50, 132}) {
		t.Errorf("size %v", size)
	}
	l.until("50x132\r\n")
	mustWrite(t, p, "\x04")
	if record := waitClosed(t, p); record.Code != 0 {
		t.Errorf("%+v", record)
	}
	wantKind(t, p.Resize(WindowSize{1, 1}), AlreadyExited)
}

func TestResize_WithoutTerminal(t *testing.T) {
	p := start(t, shell("exit 0"))
	wantKind(t, p.Resize(WindowSize{1, 1}), NotATerminal)
	if p.WindowSize() != (WindowSize{}) {
		t.Error("a pipe has a size")
	}
	waitClosed(t, p)
}

func TestTerminal_LineDiscipline(t *testing.T) {
	p := start(t, onTerminal(Spec{Argv: []string{"cat"}, Cwd: "/"}, 0, 0))
	mustWrite(t, p, "hello\n")
	l := readLog(t, p)
	l.until("hello\r\nhello\r\n")
	wantKind(t, p.CloseStdin(context.Background()), StdinIsTerminal)
	mustWrite(t, p, "\x04") // Ctrl-D
	if record := waitClosed(t, p); record.Code != 0 || record.Signal != 0 {
		t.Errorf("%+v", record)
	}
}

func TestTerminal_CtrlC(t *testing.T) {
	p := start(t, onTerminal(shell("echo ready; exec sleep 1000"), 0, 0))
	readLog(t, p).until("ready")
	mustWrite(t, p, "\x03")
	if record := waitClosed(t, p); record.Signal != syscall.SIGINT || record.Cause != CauseExited {
		t.Errorf("%+v", record)
	}
}

func TestTerminal_OutputPrecedesExited(t *testing.T) {
	for range 20 {
		output, _ := run(t, onTerminal(shell("head -c 50000 /dev/zero; echo end"), 0, 0))
		if len(output.terminal) != 50000+len("end\r\n") {
			t.Fatalf("%d bytes", len(output.terminal))
		}
		if want := "[terminal exited closed]"; strings.Join(output.kinds, " ") != strings.Trim(want, "[]") {
			t.Fatalf("events %v", output.kinds)
		}
	}
}

func TestTerminal_ReopenedByProcess(t *testing.T) {
	script := "exec 3<>/dev/null; exec <&3 >&3 2>&3; sleep 0.1; echo back again >/dev/tty; exit 9"
	output, record := run(t, onTerminal(shell(script), 0, 0))
	if output.terminal != "back again\r\n" || record.Code != 9 || record.Signal != 0 {
		t.Errorf("%+v, %+v", output, record)
	}
}

// A new owner reads from the beginning, so its window is full, while no process has the terminal
// open.
func TestTerminal_ClosedWithFullWindow_Ends(t *testing.T) {
	const size = 300_000
	gate := t.TempDir() + "/gate"
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	spec := onTerminal(shell("head -c 300000 /dev/zero; exec <&- >&- 2>&-; read x < "+gate), 0, 0)
	spec.Output.RetainedBytes, spec.Output.Held = 64<<10, true
	p := start(t, spec)
	owner, err := p.Log().Own(0)
	if err != nil {
		t.Fatal(err)
	}
	for got := 0; got < size; {
		batch, err := owner.Next(testContext(t), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range batch.Events {
			got += len(event.Data)
			_ = owner.Acknowledge(event.Seq)
		}
	}
	poll(t, "the terminal to be closed", func() (hungUp bool) {
		_ = p.streams[0].conn.Control(func(fd uintptr) { hungUp = pollReadable(fd) == unix.POLLHUP })
		return hungUp
	})
	if owner, err = p.Log().Own(0); err != nil {
		t.Fatal(err)
	}
	write(t, gate, "go\n", 0)
	waitFor(t, "waited", p.settled)
	_ = owner.Acknowledge(p.Log().Stats().LastSeq)
	if record := waitClosed(t, p); record.Code != 0 || record.Signal != 0 {
		t.Errorf("%+v", record)
	}
}

func TestTerminal_BackgroundJobsAreKilled(t *testing.T) {
	p := start(t, onTerminal(shell("sleep 1000 & exit 4"), 0, 0))
	if record := waitClosed(t, p); record.Code != 4 {
		t.Errorf("%+v", record)
	}
}

func TestSignal_ForegroundJob(t *testing.T) {
	for _, sig := range []struct {
		name string
		sig  syscall.Signal
	}{{"INT", syscall.SIGINT}, {"USR1", syscall.SIGUSR1}} {
		script := "set -m; trap 'echo shell' " + sig.name + "; sh -c 'trap \"echo job; exit 0\" " + sig.name +
			"; echo ready; while :; do sleep 0.01; done'; echo done"
		p := start(t, onTerminal(shell(script), 0, 0))
		l := readLog(t, p)
		l.until("ready")
		if err := p.Signal(sig.sig, TargetForeground); err != nil {
			t.Fatal(err)
		}
		output := l.all().terminal
		if !strings.HasSuffix(output, "job\r\ndone\r\n") || strings.Contains(output, "shell") {
			t.Errorf("%s: %q", sig.name, output)
		}
		wantKind(t, p.Signal(sig.sig, TargetForeground), AlreadyExited)
	}
}

func TestSignal_ForegroundIsLeader(t *testing.T) {
	p := start(t, onTerminal(shell("echo ready; exec sleep 1000"), 0, 0))
	readLog(t, p).until("ready")
	if err := p.Signal(syscall.SIGUSR2, TargetForeground); err != nil {
		t.Fatal(err)
	}
	if record := waitClosed(t, p); record.Signal != syscall.SIGUSR2 {
		t.Errorf("%+v", record)
	}
	piped := start(t, shell("exit 0"))
	wantKind(t, piped.Signal(syscall.SIGINT, TargetForeground), NotATerminal)
	waitClosed(t, piped)
}

func TestTerminal_NeverRead_BlocksOnlyItsWriters(t *testing.T) {
	p := start(t, onTerminal(shell("stty raw -echo; echo ready; exec sleep 1000"), 0, 0))
	readLog(t, p).until("ready")
	result := make(chan error, 1)
	go func() {
		for {
			if err := p.WriteStdin(testContext(t), make([]byte, 1<<20)); err != nil {
				result <- err
				return
			}
		}
	}()
	waitForWriters(t, p, 1)
	if _, err := p.Terminate(testContext(t), Termination{}); err != nil {
		t.Fatal(err)
	}
	wantKind(t, <-result, StdinClosed)
	waitClosed(t, p)
}

// screenOf returns the text of the screen, which has exactly the output in the log up to seq.
func screenOf(t *testing.T, p *Process) (text string, seq uint64) {
	t.Helper()
	if err := p.Screen(func(s *screen.Screen, at uint64) { text, seq = strings.TrimRight(s.Text(), "\n"), at }); err != nil {
		t.Fatal(err)
	}
	return text, seq
}

func TestScreen_ShowsTheOutput(t *testing.T) {
	p := start(t, onTerminal(shell(`read line; printf 'one\n\033[31mtwo\n'; exec cat`), 4, 10))
	if text, seq := screenOf(t, p); text != "" || seq != 0 || p.ScreenBytes() != 0 {
		t.Errorf("%q at %d, %d bytes before the first output", text, seq, p.ScreenBytes())
	}
	pattern, err := NewPattern("(?m)^two$")
	if err != nil {
		t.Fatal(err)
	}
	wait := func(want bool, rest, wait time.Duration) {
		t.Helper()
		if got, err := p.WaitScreen(testContext(t), pattern, rest, wait, func(*screen.Screen, uint64) {}); got != want || err != nil {
			t.Errorf("waiting returned %v, %v", got, err)
		}
	}
	wait(false, 0, 0)
	mustWrite(t, p, "\n")
	wait(true, 0, testTimeout)
	wait(true, time.Millisecond, testTimeout)
	readLog(t, p).until("two\r\n")
	text, seq := screenOf(t, p)
	if text != "\none\ntwo" || seq != p.Log().Stats().LastSeq || p.ScreenBytes() == 0 {
		t.Errorf("%q at %d of %d", text, seq, p.Log().Stats().LastSeq)
	}
	changed, err := p.WatchScreen(func(*screen.Screen, uint64) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Resize(WindowSize{Rows: 2, Cols: 65535}); err != nil {
		t.Fatal(err)
	}
	<-changed
	if text, _ := screenOf(t, p); text != "two" {
		t.Errorf("%q after a resize", text)
	}
	if err := p.Resize(WindowSize{Rows: 65535, Cols: 65535}); err != nil {
		t.Fatal(err)
	}
	wantKind(t, p.Screen(func(*screen.Screen, uint64) {}), ScreenUnavailable)
	if err := p.Resize(WindowSize{Rows: 4, Cols: 10}); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, p, "\x04") // Ctrl-D
	waitClosed(t, p)
	wait(false, 0, testTimeout)
	if text, seq := screenOf(t, p); text != "" || seq != p.Log().Stats().LastSeq {
		t.Errorf("%q at %d after the end", text, seq)
	}
}

func TestScreen_WithoutTerminal(t *testing.T) {
	p := start(t, shell("exit 0"))
	wantKind(t, p.Screen(func(*screen.Screen, uint64) {}), NotATerminal)
	_, err := p.WatchScreen(func(*screen.Screen, uint64) {})
	wantKind(t, err, NotATerminal)
	waitClosed(t, p)
}
