package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// terminated is the result of process/terminate with a mode.
type terminated struct {
	Running       bool
	ExitCode      *int
	Method        *string
	VerifiedEmpty bool
}

func (cl *client) terminate(id string, members ...any) terminated {
	cl.t.Helper()
	var result terminated
	cl.decode(cl.must("process/terminate", with(map[string]any{"processId": id}, members...)), &result)
	return result
}

func TestTerminate_Graceful_SendsSIGTERM(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	cl.start("obeys", "trap 'echo asked; exit 5' TERM; echo ready; while :; do sleep 0.01; done")
	cl.event("obeys", "process/output")
	got := cl.terminate("obeys", "mode", "graceful", "timeoutMs", 3_600_000)
	if !got.Running || got.ExitCode == nil || *got.ExitCode != 5 || got.Method == nil {
		t.Errorf("%+v", got)
	}
	if text, code := cl.output("obeys", 1); !strings.Contains(text, "asked\n") || code != 5 {
		t.Errorf("it wrote %q and exited with %d", text, code)
	}

	cl.start("deaf", "trap '' TERM; echo ready; while :; do sleep 0.01; done")
	cl.event("deaf", "process/output")
	got = cl.terminate("deaf", "mode", "graceful", "timeoutMs", 10)
	if !got.Running || got.ExitCode == nil || *got.ExitCode != 137 || got.Method == nil {
		t.Errorf("%+v", got)
	}
	if _, code := cl.output("deaf", 1); code != 137 {
		t.Errorf("it exited with %d", code)
	}
	if got := cl.terminate("deaf", "mode", "force"); got.Running || got.ExitCode == nil || *got.ExitCode != 137 {
		t.Errorf("a process that has exited: %+v", got)
	}
}

func TestTerminate_Force_ReportsMethod(t *testing.T) {
	cl, _ := newTestServer(t, patientHolds).attach("")
	cl.start("p", "trap '' TERM; echo ready; sleep 1000 & wait")
	cl.event("p", "process/output")
	ask := cl.ask("process/terminate", map[string]any{"processId": "p", "mode": "force"})
	if _, code := cl.output("p", 1); code != 137 {
		t.Errorf("it exited with %d", code)
	}
	f, answered := cl.wait("the response", func(f frame) bool { return string(f.ID) == ask })
	_, exited := cl.wait("the exit", func(f frame) bool { return f.Method == "process/exited" })
	if exited < answered {
		t.Errorf("the exit precedes the response: %s", summary(cl.all()))
	}
	var got terminated
	cl.decode(f.Result, &got)
	if !got.Running || got.ExitCode == nil || *got.ExitCode != 137 || got.Method == nil {
		t.Errorf("%s", f.raw)
	}
	const nothing = `{"running":false,"exitCode":null,"method":null,"verifiedEmpty":false}`
	if got := cl.must("process/terminate", map[string]any{"processId": "unknown", "mode": "force"}); string(got) != nothing {
		t.Errorf("an unknown process: %s", got)
	}
	for _, test := range []struct {
		members []any
		field   string
		text    string
	}{
		{[]any{"mode", "gently"}, "mode", "unknown variant `gently`, expected `force` or `graceful`"},
		{[]any{"timeoutMs", 5}, "timeoutMs", "`timeoutMs` is for the mode graceful"},
		{[]any{"timeoutMs", 5, "mode", "force"}, "timeoutMs", "`timeoutMs` is for the mode graceful"},
		{[]any{"timeoutMs", -5, "mode", "graceful"}, "timeoutMs", "expected u64"},
	} {
		refusal := cl.refused("process/terminate", with(map[string]any{"processId": "p"}, test.members...), -32602, test.text)
		if refusal.Data["field"] != test.field {
			t.Errorf("%v: the data is %v", test.members, refusal.Data)
		}
	}
}

func TestTerminate_ReturnsResultOfServer(t *testing.T) {
	s, srv := newScriptedServer(t)
	s.signal = func() {}
	cl, _ := srv.attach("")
	for method, name := range map[execwirev1.KillMethod]string{
		execwirev1.KillMethod_KILL_METHOD_UNSPECIFIED:   "null",
		execwirev1.KillMethod_KILL_METHOD_PROCESS_GROUP: `"processGroup"`,
		execwirev1.KillMethod_KILL_METHOD_DESCENDANTS:   `"descendants"`,
		execwirev1.KillMethod_KILL_METHOD_CGROUP:        `"cgroup"`,
	} {
		s.terminated = &execwirev1.TerminateProcessResponse{WasRunning: true, Method: method, VerifiedEmpty: true,
			Exit: &execwirev1.ExitRecord{Status: &execwirev1.ExitRecord_Signal{Signal: execwirev1.Signal_SIGNAL_TERM}}}
		got := cl.must("process/terminate", map[string]any{"processId": "p", "mode": "graceful"})
		if want := `{"running":true,"exitCode":143,"method":` + name + `,"verifiedEmpty":true}`; string(got) != want {
			t.Errorf("the response is %s, want %s", got, want)
		}
	}
}

// A termination with a mode also kills descendants that outlive the process.
func TestTerminate_WithMode_KillsLeftDescendants(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	cl.start("leader", "sleep 1000 & exit 3")
	cl.event("leader", "process/exited")
	if got := cl.terminate("leader"); got.Running || got.Method != nil {
		t.Errorf("%+v", got)
	}
	got := cl.terminate("leader", "mode", "force")
	if got.Running || got.ExitCode == nil || *got.ExitCode != 3 || got.Method == nil {
		t.Errorf("%+v", got)
	}
	cl.output("leader", 1)
}

// Graceful terminations in flight do not block a forced one.
func TestTerminate_ManyGraceful_LeavePermits(t *testing.T) {
	cl, _ := newTestServer(t).attach("", func(_ *pipe, c *Config) { c.ControlRequests = 1 })
	leave := filepath.Join(t.TempDir(), "leave")
	var asks []string
	for i := range 5 {
		id := fmt.Sprint("p", i)
		cl.start(id, "trap '' TERM; echo ready; while ! test -e "+leave+"; do sleep 0.01; done")
		cl.event(id, "process/output")
		asks = append(asks, cl.ask("process/terminate", map[string]any{"processId": id, "mode": "graceful", "timeoutMs": 3_600_000}))
	}
	cl.must("environment/status", nil)
	cl.must("process/terminate", map[string]any{"processId": "p0"})
	if err := os.WriteFile(leave, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, ask := range asks {
		if f := cl.reply(ask); f.Error != nil {
			t.Errorf("%s", f.raw)
		}
	}
}
