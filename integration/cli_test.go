package integration

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// wires are the doors that another process can come in by.
var wires = []door{unixDoor, tcpDoor}

func TestRunExitsAsTheProcessDoes(t *testing.T) {
	server := serve(t)
	for code := range 256 {
		if interesting := code%32 < 2 || code%32 == 31; testing.Short() && !interesting {
			continue
		}
		door := wires[code%len(wires)]
		got := run(t, nil, append(server.through(door, "--"), shell("exit "+strconv.Itoa(code))...)...)
		if got.code != code || got.stdout+got.stderr != "" {
			t.Errorf("exit %d through %s is exit code %d: %+v", code, door, got.code, got)
		}
	}
}

// The exit codes that help promises, and what is said with them.
func TestRunExitsWithItsOwnCodes(t *testing.T) {
	server := serve(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	nowhere := "unix://" + filepath.Join(shortDir(t), "nobody")
	for _, d := range wires {
		for _, tt := range []struct {
			name string
			args []string
			code int
			says string
		}{
			{"killed", server.through(d, "--", "/bin/sh", "-c", "kill -KILL $$"), 128 + 9, ""},
			{"terminated", server.through(d, "--", "/bin/sh", "-c", "kill -TERM $$"), 128 + 15, ""},
			{"not found", server.through(d, "--", "no-such-program"), 127, "no-such-program"},
			{"not executable", server.through(d, "--", file), 126, file},
			{"a directory", server.through(d, "--", "/"), 126, "directory"},
			{"bad directory", server.through(d, "--cwd", "/no/such", "--", "true"), 125, "--cwd"},
			{"no server", []string{"run", "--server", nowhere, "--", "true"}, 125, "start a server with"},
			{"timeout", append(server.through(d, "--timeout", "100ms", "--"), shell("sleep 100")...), 124, "timeout"},
			{"no program", server.through(d), 2, "--help"},
			{"no such flag", server.through(d, "--no-such-flag"), 2, "--help"},
		} {
			got := run(t, nil, tt.args...)
			if got.code != tt.code || !strings.Contains(got.stderr, tt.says) || got.stdout != "" || tt.says == "" && got.stderr != "" {
				t.Errorf("%s: %s through %s: %+v, want code %d and %q", tt.name, tt.args, d, got, tt.code, tt.says)
			}
		}
	}
}

// randomBytes returns n bytes that are different each time.
func randomBytes(n int) []byte {
	b := make([]byte, n)
	chacha := rand.NewChaCha8([32]byte{byte(rand.Int()), byte(rand.Int())})
	_, _ = chacha.Read(b)
	return b
}

func TestRunPassesBinaryOutputApart(t *testing.T) {
	server := serve(t)
	dir := t.TempDir()
	out, err := randomBytes(8<<20), randomBytes(1<<20)
	for name, data := range map[string][]byte{"out": out, "err": err} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range wires {
		got := run(t, nil, append(server.through(d, "--cwd", dir, "--"), shell("cat err >&2 & cat out; wait; exit 5")...)...)
		if got.code != 5 || got.stdout != string(out) || got.stderr != string(err) {
			t.Errorf("through %s: code %d, %d and %d bytes; want 5 and exactly the %d and %d that were written",
				d, got.code, len(got.stdout), len(got.stderr), len(out), len(err))
		}
	}
}

func TestRunPassesInput(t *testing.T) {
	server := serve(t)
	input := randomBytes(4 << 20)
	for _, d := range wires {
		got := run(t, bytes.NewReader(input), server.through(d, "-i", "--", "cat")...)
		if got.code != 0 || got.stdout != string(input) || got.stderr != "" {
			t.Errorf("through %s: code %d, %d bytes of %d, %q", d, got.code, len(got.stdout), len(input), got.stderr)
		}
		got = run(t, strings.NewReader("not for it"), server.through(d, "--", "cat")...)
		if got != (result{}) {
			t.Errorf("through %s without -i: %+v, want nothing", d, got)
		}
	}
}

// held is a command that runs the program echo on a server until release, or
// until its server is gone: nothing of it is left behind in any case.
type held struct {
	*command
	stdout  lockedBuffer
	release io.WriteCloser // its input
}

func hold(t *testing.T, server *command, d door, flags ...string) *held {
	t.Helper()
	flags = append([]string{"-i", "--id", "held"}, flags...)
	h := &held{command: newCommand(append(server.through(d, append(flags, "--")...), program("echo")...)...)}
	h.Stdout = &h.stdout
	input, err := h.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.release = input
	h.launch(t)
	if _, err := input.Write([]byte("held\n")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process answers", func() bool { return h.stdout.String() == "held\n" })
	return h
}

// remote is a client of a server in another process.
func remote(t *testing.T, server *command, d door) execwirev1.ProcessServiceClient {
	t.Helper()
	c, err := client.Dial(testContext(t), server.urls[d])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.Processes()
}

// A client that is killed leaves its process for the grace and no longer.
func TestAKilledClientsProcessIsTerminated(t *testing.T) {
	for _, d := range wires {
		t.Run(string(d), func(t *testing.T) {
			server := serve(t)
			h := hold(t, server, d, "--grace", "500ms")
			h.send(t, unix.SIGKILL)
			h.await(t)
			response, err := remote(t, server, d).WaitProcess(testContext(t), &execwirev1.WaitProcessRequest{ProcessId: "held"})
			if exit := response.GetProcess().GetExit(); err != nil || exit.GetCause() != terminated || exit.GetSignal() != sigkill {
				t.Errorf("the process ended with %v, %v; want it terminated", exit, err)
			}
			if said := server.errors.String(); strings.Contains(said, "unforeseen") {
				t.Errorf("that a client is gone was not foreseen:\n%s", said)
			}
		})
	}
}

// A client whose server is killed says so, and not that the process ended.
func TestAKilledServerIsALoss(t *testing.T) {
	for _, d := range wires {
		t.Run(string(d), func(t *testing.T) {
			server := serve(t)
			h := hold(t, server, d, "--grace", "0")
			server.killServer(t)
			if code := server.await(t); code != 128+9 {
				t.Errorf("the guardian ended with %d", code)
			}
			if code := h.await(t); code != 125 || !strings.Contains(h.errors.String(), "connection lost") {
				t.Errorf("the client ended with %d and %q, want 125 and that the connection was lost", code, h.errors.String())
			}
		})
	}
}

// SIGTERM drains: what runs may finish, nothing new begins.
func TestTheServerDrainsOnSIGTERM(t *testing.T) {
	for _, d := range wires {
		t.Run(string(d), func(t *testing.T) {
			server := serve(t, "EXECWIRE_SHUTDOWN_GRACE_PERIOD="+patience.String())
			h := hold(t, server, d)
			server.send(t, unix.SIGTERM)
			var refused result
			eventually(t, "the server refuses processes", func() bool {
				refused = run(t, nil, server.through(d, "--", "true")...)
				return refused.code != 0
			})
			if refused.code != 125 || !strings.Contains(refused.stderr, "started again") {
				t.Errorf("a run on a draining server: %+v", refused)
			}
			if err := h.release.Close(); err != nil {
				t.Fatal(err)
			}
			if code := h.await(t); code != 0 || h.stdout.String() != "held\n" {
				t.Errorf("the process that ran ended with %d and %q", code, h.stdout.String())
			}
			if code := server.await(t); code != 0 {
				t.Errorf("the server ended with %d: %s", code, server.errors.String())
			}
		})
	}
}

// What does not finish within the grace is ended, and its client is told by
// whom.
func TestTheServerEndsWhatDoesNotFinish(t *testing.T) {
	for _, d := range wires {
		t.Run(string(d), func(t *testing.T) {
			server := serve(t, "EXECWIRE_SHUTDOWN_GRACE_PERIOD=200ms")
			h := hold(t, server, d)
			server.send(t, unix.SIGTERM)
			if code := h.await(t); code != 128+9 || !strings.Contains(h.errors.String(), "server shut down") {
				t.Errorf("the client ended with %d and %q", code, h.errors.String())
			}
			if code := server.await(t); code != 0 {
				t.Errorf("the server ended with %d: %s", code, server.errors.String())
			}
		})
	}
}

// Without a server the command brings its own along.
func TestRunNeedsNoServer(t *testing.T) {
	got := run(t, strings.NewReader("hello"), append([]string{"run", "-i", "--"}, shell("tr a-z A-Z; echo apart >&2; exit 6")...)...)
	if want := (result{code: 6, stdout: "HELLO", stderr: "apart\n"}); got != want {
		t.Errorf("run = %+v, want %+v", got, want)
	}
}
