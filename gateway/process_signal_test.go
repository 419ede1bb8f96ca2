package gateway

import (
	"fmt"
	"strings"
	"testing"
)

// signalReporter is a script that prints received signals, and exits at TERM.
const signalReporter = `for s in HUP INT QUIT USR1 USR2 WINCH CONT; do trap "echo heard $s" $s; done
trap 'echo heard TERM; exit 9' TERM; echo ready; while :; do sleep 0.01; done`

func TestSignal_AllSignals(t *testing.T) {
	cl, _ := newTestServer(t, patientHolds).attach("")
	cl.start("p", signalReporter)
	cl.event("p", "process/output")
	for _, test := range []struct {
		signal any
		name   string
	}{
		{"SIGHUP", "HUP"}, {"USR1", "USR1"}, {12, "USR2"}, {"SIGWINCH", "WINCH"}, {18, "CONT"}, {"QUIT", "QUIT"},
		{"interrupt", "INT"}, {"SIGTERM", "TERM"},
	} {
		ask := cl.ask("process/signal", map[string]any{"processId": "p", "signal": test.signal})
		output := "heard " + test.name + "\n"
		_, effect := cl.wait(output, func(f frame) bool { return strings.Contains(string(f.Params.Chunk), output) })
		if f, answer := cl.wait("the response", func(f frame) bool { return string(f.ID) == ask }); string(f.Result) != "{}" || answer > effect {
			t.Errorf("%v: got %s as message %d; the signal was received as message %d", test.signal, f.raw, answer, effect)
		}
	}
	if _, code := cl.output("p", 1); code != 9 {
		t.Errorf("it exited with %d", code)
	}
	for _, signal := range []any{"SIGKILL", 9, 64} {
		id := fmt.Sprint(signal)
		cl.start(id, "exec sleep 1000")
		cl.must("process/signal", map[string]any{"processId": id, "signal": signal})
		want := 128 + 9
		if signal == 64 {
			want = 128 + 64
		}
		if _, code := cl.output(id, 1); code != want {
			t.Errorf("%v: it exited with %d", signal, code)
		}
		cl.must("process/signal", map[string]any{"processId": id, "signal": signal}) // the process has exited
	}
	cl.must("process/signal", map[string]any{"processId": "unknown", "signal": "SIGTERM"})
}

func TestSignal_Invalid_Fails(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	cl.start("p", "exec sleep 1000")
	for _, test := range []struct{ members, text string }{
		{`"signal":"SIGNONE"`, "unknown variant `SIGNONE`, expected `interrupt`, a number from 1 to 64, or a name: SIGHUP, SIGINT, "},
		{`"signal":"term"`, "unknown variant `term`"},
		{`"signal":"UNSPECIFIED"`, "unknown variant `UNSPECIFIED`"},
		{`"signal":""`, "unknown variant ``"},
		{`"signal":0`, "`signal` is 0: use 1 to 64"},
		{`"signal":-9`, "`signal` is -9: use 1 to 64"},
		{`"signal":65`, "`signal` is 65: use 1 to 64"},
		{`"signal":1.5`, "`signal` is neither a string nor an integer"},
		{`"signal":null`, "`signal` is neither a string nor an integer"},
		{`"signal":["SIGTERM"]`, "`signal` is neither a string nor an integer"},
		{`"more":1`, "missing field `signal`"},
		{`"signal":"SIGTERM","target":"everybody"`, "unknown variant `everybody`, expected one of `group`, `process`, `foreground`"},
	} {
		cl.refused("process/signal", rawJSON(`{"processId":"p",`+test.members+`}`), -32602, test.text)
	}
	refusal := cl.refused("process/signal", map[string]any{"processId": "p", "signal": "SIGNONE"}, -32602, "")
	if refusal.Data["field"] != "signal" {
		t.Errorf("the data is %v", refusal.Data)
	}
	refusal = cl.refused("process/signal", map[string]any{"processId": "p", "signal": "SIGTERM", "target": "foreground"}, -32600, "no foreground")
	if refusal.Data["reason"] != "NOT_A_TERMINAL" {
		t.Errorf("the data is %v", refusal.Data)
	}
}

// A shell and its child are in one group. Each reports the signals that it
// receives.
func TestSignal_Target(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	member := func(name string) string {
		return fmt.Sprintf(`trap 'echo %s heard' USR1; trap 'echo %s was asked' USR2; echo %s ready; while :; do sleep 0.01; done`, name, name, name)
	}
	cl.start("p", "("+member("child")+") & "+member("leader"))
	waitFor := func(text string) {
		t.Helper()
		cl.wait(text, func(frame) bool { return strings.Contains(outputIn(cl.frames, "p"), text) })
	}
	waitFor("child ready")
	waitFor("leader ready")
	cl.must("process/signal", map[string]any{"processId": "p", "signal": "USR1", "target": "process"})
	waitFor("leader heard")
	cl.must("process/signal", map[string]any{"processId": "p", "signal": "USR2", "target": "group"})
	waitFor("child was asked")
	waitFor("leader was asked")
	if strings.Contains(outputIn(cl.all(), "p"), "child heard") {
		t.Error("a signal to the process reached its child")
	}
	cl.must("process/terminate", map[string]any{"processId": "p"})
}
