package gateway

import (
	"strings"
	"testing"
)

// terminalSizes is a script that prints the size of its terminal at its start and
// after each change.
const terminalSizes = `trap 'stty size' WINCH; stty size; while :; do sleep 0.01; done`

func TestTerminal_Size(t *testing.T) {
	cl, _ := newTestServer(t, patientHolds).attach("")
	awaitSize := func(text string) {
		t.Helper()
		cl.wait("the size "+text, func(frame) bool { return strings.Contains(outputIn(cl.frames, "p"), text+"\r\n") })
	}
	start := cl.ask("process/start", startOf("p", terminalSizes, "tty", true, "rows", 50, "cols", 132))
	awaitSize("50 132")
	size := map[string]any{"processId": "p", "rows": 65535, "cols": 1}
	resize := cl.ask("process/resize", size)
	awaitSize("65535 1")
	if f := cl.reply(resize); string(f.Result) != "{}" {
		t.Errorf("a resize: got %s", f.raw)
	}
	checkOrder(t, cl.all(), map[string]string{"p": start})
	_, answered := cl.wait("the response", func(f frame) bool { return string(f.ID) == resize })
	_, effect := cl.wait("the effect", func(f frame) bool { return strings.Contains(string(f.Params.Chunk), "65535 1") })
	if effect < answered {
		t.Errorf("the effect of a resize precedes its response: %s", summary(cl.all()))
	}
	cl.must("process/terminate", map[string]any{"processId": "p"})
	cl.event("p", "process/closed")
	cl.must("process/resize", size) // the process may have exited
}

// Resizes that are sent together with the start follow it. The last one wins.
func TestResize_Pipelined_KeepsOrder(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	cl.ask("process/start", startOf("p", "read line; stty size", "tty", true, "rows", nil, "cols", nil))
	for rows := range 40 {
		cl.ask("process/resize", map[string]any{"processId": "p", "rows": 100 + rows, "cols": 100})
	}
	cl.must("process/resize", map[string]any{"processId": "p", "rows": 7, "cols": 9})
	cl.must("process/write", writeOf("p", "go\n"))
	if text, code := cl.output("p", 1); code != 0 || !strings.Contains(text, "7 9\r\n") {
		t.Errorf("it wrote %q and exited with %d", text, code)
	}
}

func TestTerminalSize_Invalid_Fails(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	cl.start("pipes", "exec sleep 1000")
	refused := func(method string, params map[string]any, field, text string) {
		t.Helper()
		if refusal := cl.refused(method, params, -32602, text); refusal.Data["field"] != field {
			t.Errorf("%v: the data is %v, want the field %s", params, refusal.Data, field)
		}
	}
	for _, test := range []struct {
		members []any
		field   string
		text    string
	}{
		{[]any{"rows", 10}, "cols", "`cols` is missing: give rows and cols, or neither"},
		{[]any{"cols", 10}, "rows", "`rows` is missing: give rows and cols, or neither"},
		{[]any{"rows", 0, "cols", 10}, "rows", "`rows` is 0: use 1 to 65535"},
		{[]any{"rows", 10, "cols", 0}, "cols", "`cols` is 0: use 1 to 65535"},
		{[]any{"rows", 65536, "cols", 10}, "rows", "expected u16"},
		{[]any{"rows", 10, "cols", -1}, "cols", "expected u16"},
		{[]any{"rows", 10, "cols", 10, "tty", false}, "rows", "`rows` is for a process with a terminal: set tty, or leave it out"},
		{[]any{"cols", 10, "tty", false}, "cols", "`cols` is for a process with a terminal: set tty, or leave it out"},
	} {
		refused("process/start", with(startOf("p", "true", "tty", true), test.members...), test.field, test.text)
	}
	refused("process/resize", map[string]any{"processId": "pipes", "rows": 0, "cols": 1}, "rows", "`rows` is 0: use 1 to 65535")
	refused("process/resize", map[string]any{"processId": "pipes", "rows": 1, "cols": 65536}, "cols", "expected u16")
	cl.refused("process/resize", map[string]any{"processId": "pipes", "rows": 1}, -32602, "missing field `cols`")
	cl.refused("process/resize", map[string]any{"processId": strings.Repeat("x", 2000), "rows": 1, "cols": 1}, -32602, "processId is longer")
	cl.refused("process/resize", map[string]any{"processId": "unknown", "rows": 1, "cols": 1}, -32600, "unknown process id unknown")
	refusal := cl.refused("process/resize", map[string]any{"processId": "pipes", "rows": 1, "cols": 1}, -32600, "without a terminal")
	if refusal.Data["reason"] != "NOT_A_TERMINAL" {
		t.Errorf("the data is %v", refusal.Data)
	}
}
