package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

func TestRun_ExitCode_IsTheProcesses(t *testing.T) {
	server := harness.Serve(t)
	for code := range 256 {
		if interesting := code%32 < 2 || code%32 == 31; testing.Short() && !interesting {
			continue
		}
		transport := harness.NetworkTransports[code%len(harness.NetworkTransports)]
		got := harness.Run(t, nil, append(server.Through(transport, "--"), harness.Shell("exit "+strconv.Itoa(code))...)...)
		if got.Code != code || got.Stdout+got.Stderr != "" {
			t.Errorf("exit %d through %s is exit code %d: %+v", code, transport, got.Code, got)
		}
	}
}

// The exit codes of the help text, and their messages.
func TestRun_OwnExitCodes(t *testing.T) {
	server := harness.Serve(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	nowhere := "unix://" + filepath.Join(harness.ShortDir(t), "nobody")
	for _, d := range harness.NetworkTransports {
		for _, tt := range []struct {
			name string
			args []string
			code int
			says string
		}{
			{"killed", server.Through(d, "--", "/bin/sh", "-c", "kill -KILL $$"), 128 + 9, ""},
			{"terminated", server.Through(d, "--", "/bin/sh", "-c", "kill -TERM $$"), 128 + 15, ""},
			{"not found", server.Through(d, "--", "no-such-program"), 127, "no-such-program"},
			{"not executable", server.Through(d, "--", file), 126, file},
			{"a directory", server.Through(d, "--", "/"), 126, "directory"},
			{"bad directory", server.Through(d, "--cwd", "/no/such", "--", "true"), 125, "--cwd"},
			{"no server", []string{"run", "--server", nowhere, "--", "true"}, 125, "start a server with"},
			{"timeout", append(server.Through(d, "--timeout", "100ms", "--"), harness.Shell("sleep 100")...), 124, "timeout"},
			{"no program", server.Through(d), 2, "--help"},
			{"no such flag", server.Through(d, "--no-such-flag"), 2, "--help"},
		} {
			got := harness.Run(t, nil, tt.args...)
			if got.Code != tt.code || !strings.Contains(got.Stderr, tt.says) || got.Stdout != "" || tt.says == "" && got.Stderr != "" {
				t.Errorf("%s: %s through %s: %+v, want code %d and %q", tt.name, tt.args, d, got, tt.code, tt.says)
			}
		}
	}
}

func TestRun_BinaryOutput_StreamsAreSeparate(t *testing.T) {
	server := harness.Serve(t)
	dir := t.TempDir()
	out, err := harness.RandomBytes(8<<20), harness.RandomBytes(1<<20)
	for name, data := range map[string][]byte{"out": out, "err": err} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range harness.NetworkTransports {
		got := harness.Run(t, nil, append(server.Through(d, "--cwd", dir, "--"), harness.Shell("cat err >&2 & cat out; wait; exit 5")...)...)
		if got.Code != 5 || got.Stdout != string(out) || got.Stderr != string(err) {
			t.Errorf("through %s: code %d, %d and %d bytes; want 5 and exactly the %d and %d that were written",
				d, got.Code, len(got.Stdout), len(got.Stderr), len(out), len(err))
		}
	}
}

func TestRun_Stdin(t *testing.T) {
	server := harness.Serve(t)
	input := harness.RandomBytes(4 << 20)
	for _, d := range harness.NetworkTransports {
		got := harness.Run(t, bytes.NewReader(input), server.Through(d, "-i", "--", "cat")...)
		if got.Code != 0 || got.Stdout != string(input) || got.Stderr != "" {
			t.Errorf("through %s: code %d, %d bytes of %d, %q", d, got.Code, len(got.Stdout), len(input), got.Stderr)
		}
		got = harness.Run(t, strings.NewReader("not for it"), server.Through(d, "--", "cat")...)
		if got != (harness.Result{}) {
			t.Errorf("through %s without -i: %+v, want nothing", d, got)
		}
	}
}

// The process of a client that is killed runs until the grace period ends.
func TestRun_KilledClient_TerminatesTheProcess(t *testing.T) {
	for _, d := range harness.NetworkTransports {
		t.Run(string(d), func(t *testing.T) {
			server := harness.Serve(t)
			h := harness.HoldCommand(t, server, d, "--grace", "500ms")
			h.Send(t, unix.SIGKILL)
			h.Await(t)
			response, err := harness.Remote(t, server, d).WaitProcess(harness.Context(t), &execwirev1.WaitProcessRequest{ProcessId: "held"})
			if exit := response.GetProcess().GetExit(); err != nil || exit.GetCause() != harness.Terminated || exit.GetSignal() != harness.Sigkill {
				t.Errorf("the process ended with %v, %v; want it terminated", exit, err)
			}
			if said := server.Errors.String(); strings.Contains(said, "unforeseen") {
				t.Errorf("that a client is gone was not foreseen:\n%s", said)
			}
		})
	}
}

// A client whose server is killed reports that, and not an exit of the process.
func TestRun_KilledServer_ReportsTheLoss(t *testing.T) {
	for _, d := range harness.NetworkTransports {
		t.Run(string(d), func(t *testing.T) {
			server := harness.Serve(t)
			h := harness.HoldCommand(t, server, d, "--grace", "0")
			server.KillServer(t)
			if code := server.Await(t); code != 128+9 {
				t.Errorf("the guardian ended with %d", code)
			}
			if code := h.Await(t); code != 125 || !strings.Contains(h.Errors.String(), "connection lost") {
				t.Errorf("the client ended with %d and %q, want 125 and that the connection was lost", code, h.Errors.String())
			}
		})
	}
}

// SIGTERM drains: running processes may finish, and no new ones start.
func TestServe_SIGTERM_Drains(t *testing.T) {
	for _, d := range harness.NetworkTransports {
		t.Run(string(d), func(t *testing.T) {
			server := harness.Serve(t, "EXECWIRE_SHUTDOWN_GRACE_PERIOD="+harness.StepTimeout.String())
			h := harness.HoldCommand(t, server, d)
			server.Send(t, unix.SIGTERM)
			var refused harness.Result
			harness.Eventually(t, "the server refuses processes", func() bool {
				refused = harness.Run(t, nil, server.Through(d, "--", "true")...)
				return refused.Code != 0
			})
			if refused.Code != 125 || !strings.Contains(refused.Stderr, "after the restart") {
				t.Errorf("a run on a draining server: %+v", refused)
			}
			if err := h.Release.Close(); err != nil {
				t.Fatal(err)
			}
			if code := h.Await(t); code != 0 || h.Received.String() != "held\n" {
				t.Errorf("the process that ran ended with %d and %q", code, h.Received.String())
			}
			if code := server.Await(t); code != 0 {
				t.Errorf("the server ended with %d: %s", code, server.Errors.String())
			}
		})
	}
}

// A process that does not finish within the grace period is killed, and its client reports
// that the server did it.
func TestServe_SIGTERM_KillsAfterTheGrace(t *testing.T) {
	for _, d := range harness.NetworkTransports {
		t.Run(string(d), func(t *testing.T) {
			server := harness.Serve(t, "EXECWIRE_SHUTDOWN_GRACE_PERIOD=200ms")
			h := harness.HoldCommand(t, server, d)
			server.Send(t, unix.SIGTERM)
			if code := h.Await(t); code != 128+9 || !strings.Contains(h.Errors.String(), "server shut down") {
				t.Errorf("the client ended with %d and %q", code, h.Errors.String())
			}
			if code := server.Await(t); code != 0 {
				t.Errorf("the server ended with %d: %s", code, server.Errors.String())
			}
		})
	}
}

// Without a server the command embeds one.
func TestRun_WithoutAServer(t *testing.T) {
	got := harness.Run(t, strings.NewReader("hello"), append([]string{"run", "-i", "--"}, harness.Shell("tr a-z A-Z; echo apart >&2; exit 6")...)...)
	if want := (harness.Result{Code: 6, Stdout: "HELLO", Stderr: "apart\n"}); got != want {
		t.Errorf("run = %+v, want %+v", got, want)
	}
}
