package gateway

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func statusOf(cl *client, f frame) string {
	cl.t.Helper()
	var result struct{ Status string }
	if f.Error != nil || json.Unmarshal(f.Result, &result) != nil {
		cl.t.Fatalf("the response is %s", f.raw)
	}
	return result.Status
}

// The end of input follows the writes that were sent before it, and precedes
// those sent after it.
func TestCloseStdin_FollowsEarlierWrites(t *testing.T) {
	cl, _ := newTestServer(t, func(s *serverSettings) { s.limits.StdinQueueBytes = 4096 }).attach("")
	start := cl.ask("process/start", startOf("p", "wc -c", "pipeStdin", true))
	var writes []string
	for range 100 {
		writes = append(writes, cl.ask("process/write", writeOf("p", strings.Repeat("x", 4096))))
	}
	end := cl.ask("process/closeStdin", map[string]any{"processId": "p"})
	late := cl.ask("process/write", writeOf("p", "late"))
	again := cl.ask("process/closeStdin", map[string]any{"processId": "p"})
	if text, code := cl.output("p", 1); strings.TrimSpace(text) != "409600" || code != 0 {
		t.Errorf("it wrote %q and exited with %d", text, code)
	}
	for _, ask := range append(writes, end, again) {
		if got := statusOf(cl, cl.reply(ask)); got != "accepted" {
			t.Errorf("request %s: %s", ask, got)
		}
	}
	if f := cl.reply(late); f.Error == nil && statusOf(cl, f) != "stdinClosed" { // an error if the process has exited
		t.Errorf("a late write: got %s", f.raw)
	}
	checkOrder(t, cl.all(), map[string]string{"p": start})
}

func TestCloseStdin_ResponsePrecedesExit(t *testing.T) {
	cl, _ := newTestServer(t, patientHolds).attach("")
	for i := range 50 {
		id := fmt.Sprint("p", i)
		cl.start(id, "exec cat", "pipeStdin", true)
		end := cl.ask("process/closeStdin", map[string]any{"processId": id})
		cl.output(id, 1)
		_, answered := cl.wait("the response", func(f frame) bool { return string(f.ID) == end })
		_, exited := cl.wait("the exit", func(f frame) bool { return f.Method == "process/exited" && f.Params.ProcessID == id })
		if exited < answered {
			t.Fatalf("the exit precedes the response: %s", summary(cl.all()))
		}
	}
}

func TestCloseStdin_NoStdin(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	cl.start("none", "exec sleep 1000")
	cl.start("terminal", "exec cat", "tty", true)
	for id, want := range map[string]string{
		"unknown": "unknownProcess", "none": "stdinClosed",
	} {
		if got := statusOf(cl, cl.call("process/closeStdin", map[string]any{"processId": id})); got != want {
			t.Errorf("%.10s: %s", id, got)
		}
	}
	refusal := cl.refused("process/closeStdin", map[string]any{"processId": "terminal"}, -32600, "write the byte 0x04")
	if refusal.Data["reason"] != "STDIN_IS_TERMINAL" {
		t.Errorf("the data is %v", refusal.Data)
	}
	cl.refused("process/closeStdin", map[string]any{}, -32602, "missing field `processId`")
	cl.refused("process/closeStdin", map[string]any{"processId": strings.Repeat("x", 2000)}, -32602, "processId is longer than 1024 bytes")
	cl.must("process/write", writeOf("terminal", "\x04"))
	if _, code := cl.output("terminal", 1); code != 0 {
		t.Errorf("it exited with %d", code)
	}
}
