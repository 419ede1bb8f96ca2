package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// workerVerb makes this program a test worker, which executes commands that it reads
// line by line.
const workerVerb = "sandbox-test-worker"

func serveWorker() {
	if len(os.Args) != 2 || os.Args[1] != workerVerb {
		return
	}
	conn, _, err := WorkerConns()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		unix.Exit(1)
	}
	fmt.Fprintln(os.Stderr, "begun")
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		fmt.Fprintln(conn, obey(lines.Text()))
	}
	unix.Exit(0)
}

func obey(line string) string {
	verb, argument, _ := strings.Cut(line, " ")
	var text []byte
	var err error
	switch verb {
	case "read":
		text, err = os.ReadFile(argument)
	case "write":
		err = os.WriteFile(argument, []byte("x"), 0o600)
	case "overwrite":
		var file *os.File
		if file, err = os.OpenFile(argument, os.O_WRONLY, 0); err == nil {
			err = file.Close()
		}
	case "list":
		var entries []os.DirEntry
		entries, err = os.ReadDir(argument)
		for _, e := range entries {
			target, _ := os.Readlink(filepath.Join(argument, e.Name()))
			text = fmt.Appendf(text, "%s=%s;", e.Name(), target)
		}
	case "collect": // what is garbage is finalized
		for range 5 {
			runtime.GC()
			time.Sleep(10 * time.Millisecond)
		}
	case "hang":
		select {}
	case "session":
		session, _ := unix.Getsid(0)
		text = fmt.Append(text, session)
	}
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(string(text), "\n", " ") + "."
}

// libraries is needed by test programs that were built with the race detector.
var libraries = Entry{Special: SpecialMinimal, Access: AccessRead}

func startWorker(t *testing.T, sandboxes *Sandboxes, entries ...Entry) *Worker {
	t.Helper()
	confinement, err := sandboxes.Confine(resolve(t, Policy{Entries: append(entries, libraries)}))
	if err != nil {
		t.Fatal(err)
	}
	h, err := confinement.StartWorker(t.Context(), []string{"worker", workerVerb}, []string{promptExit, "LANG=C"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// ask sends a command to a worker and returns the answer.
func ask(t *testing.T, conn net.Conn, line string) string {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(conn, line); err != nil {
		t.Fatal(err)
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(answer, "\n")
}

func bothBackends(t *testing.T, test func(t *testing.T, sandboxes *Sandboxes)) {
	for _, backend := range []Backend{Bubblewrap, Landlock} {
		t.Run(backend.String(), func(t *testing.T) { test(t, probed(t, backend)) })
	}
}

func TestWorker_IsConfined(t *testing.T) {
	t.Setenv("EXECWIRE_SECRET", "hidden")
	bothBackends(t, func(t *testing.T, sandboxes *Sandboxes) {
		dir := build(t, "in/", "out = secret")
		h := startWorker(t, sandboxes, Entry{Path: dir + "/in", Access: AccessWrite})
		for line, want := range map[string]string{
			"read " + dir + "/out":     "",
			"write " + dir + "/in/f":   ".",
			"write " + dir + "/new":    "",
			"read /proc/self/environ":  "LANG=C",
			"overwrite /proc/self/mem": "",
			"read /proc/self/cmdline":  workerVerb,
			"overwrite /dev/tty":       "no such device",
			"session":                  "",
			"list /proc/self/fd":       "socket:",
		} {
			got := ask(t, h.Input(), line)
			switch {
			case want == "" && line != "session" && strings.HasSuffix(got, "."):
				t.Errorf("%s worked: %s", line, got)
			case !strings.Contains(got, want) || strings.Contains(got, "hidden") || strings.Contains(got, "secret"):
				t.Errorf("%s: %s", line, got)
			}
		}
		h.Close()
		if said := h.StderrTail(); said != "begun" {
			t.Errorf("it complained %q", said)
		}
	})
}

// A descriptor that closes when garbage is collected would be used for another file.
func TestWorker_CollectsGarbage_KeepsItsStreams(t *testing.T) {
	h := startWorker(t, probed(t, Landlock))
	ask(t, h.Input(), "collect")
	for _, want := range []string{"0=/dev/null;", "1=/dev/null;"} {
		if got := ask(t, h.Input(), "list /proc/self/fd"); !strings.Contains(got, want) {
			t.Errorf("it has %s, without %s", got, want)
		}
	}
}

// A worker ends with its connections. If it does not read, it is killed. No process
// remains.
func TestWorker_EndsWithItsConnections(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil { // as a server is one
		t.Fatal(err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	bothBackends(t, func(t *testing.T, sandboxes *Sandboxes) {
		for name, end := range map[string]func(h *Worker){
			"closed":            func(h *Worker) { _ = h.Input().Close() },
			"closed, hung":      func(h *Worker) { _, _ = io.WriteString(h.Input(), "hang\n"); h.Close() },
			"killed":            func(h *Worker) { h.Kill() },
			"its parent killed": func(h *Worker) { _ = unix.Kill(groupOf(h), unix.SIGKILL); h.Close() },
		} {
			h := startWorker(t, sandboxes)
			group := groupOf(h)
			end(h)
			select {
			case <-h.Done():
			case <-time.After(2 * time.Minute):
				t.Fatalf("%s: it goes on", name)
			}
			if err := unix.Kill(-group, 0); !errors.Is(err, unix.ESRCH) {
				t.Errorf("%s: a process is left: %v", name, err)
			}
		}
	})
}

func groupOf(h *Worker) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pid
}

func TestStartWorker_Failure_LeavesNothing(t *testing.T) {
	bothBackends(t, func(t *testing.T, sandboxes *Sandboxes) {
		dir := build(t, "in/")
		confinement, err := sandboxes.Confine(resolve(t, Policy{Entries: []Entry{{Path: dir + "/in", Access: AccessRead}, libraries}}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := confinement.StartWorker(ctx, []string{"worker", workerVerb}, nil); err == nil {
			t.Error("it was started after the end of its context")
		}
		if err := os.Rename(dir+"/in", dir+"/other"); err != nil {
			t.Fatal(err)
		}
		if _, err := confinement.StartWorker(t.Context(), []string{"worker", workerVerb}, nil); KindOf(err) != NotStarted {
			t.Errorf("in a directory that has gone: %v", err)
		}
	})
}

// A replaced file has another key, although the path is the same.
func TestKey_DependsOnFiles(t *testing.T) {
	sandboxes := probed(t, Bubblewrap)
	dir := build(t, "work/", "file = 1")
	policy := Policy{Entries: []Entry{{Path: dir + "/work", Access: AccessWrite}, {Path: dir + "/file", Access: AccessRead}, libraries},
		WorkspaceRoots: []string{dir + "/work"}}
	first := sandboxes.Key(resolve(t, policy))
	if again := sandboxes.Key(resolve(t, policy)); again != first {
		t.Errorf("%q is not %q", again, first)
	}
	confinement, err := sandboxes.Confine(resolve(t, policy))
	if err != nil {
		t.Fatal(err)
	}
	h, err := confinement.StartWorker(t.Context(), []string{"worker", workerVerb}, []string{promptExit})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir + "/work/.git"); err != nil {
		t.Errorf("the placeholder of .git is missing: %v", err)
	}
	if meanwhile := sandboxes.Key(resolve(t, policy)); meanwhile != first {
		t.Errorf("with a worker %q is not %q", meanwhile, first)
	}
	if err := os.Remove(dir + "/work/.git"); err != nil {
		t.Fatal(err)
	}
	replaced := sandboxes.Key(resolve(t, policy))
	if replaced == first {
		t.Error("a worker that is not kept from .git any more is for the policy")
	}
	if confinement, err = sandboxes.Confine(resolve(t, policy)); err != nil {
		t.Fatal(err)
	}
	second, err := confinement.StartWorker(t.Context(), []string{"worker", workerVerb}, []string{promptExit})
	if err != nil {
		t.Fatal(err)
	}
	if meanwhile := sandboxes.Key(resolve(t, policy)); meanwhile != replaced {
		t.Errorf("with its own worker %q is not %q", meanwhile, replaced)
	}
	second.Close()
	h.Close()
	for _, change := range []func() error{
		func() error { return os.Rename(dir+"/file", dir+"/old") },
		func() error { return os.WriteFile(dir+"/file", nil, 0o600) },
		func() error { return os.Mkdir(dir+"/work/.git", 0o700) },
		func() error { return errors.Join(os.Rename(dir+"/work", dir+"/gone"), os.Mkdir(dir+"/work", 0o700)) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		changed := sandboxes.Key(resolve(t, policy))
		if changed == first {
			t.Errorf("after a change it is still %q", changed)
		}
		first = changed
	}
}
