package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// Output is text, or base64 where it is not UTF-8; the last object is the end.
func TestRun_JSON(t *testing.T) {
	t.Parallel()
	var streams [2]string
	got := runCommand(t, command(t, "run", "--json", "--", "sh", "-c", `echo out; echo err >&2; exec sh -c 'printf "\377"; exit 3'`))
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	for i, line := range lines {
		var event struct {
			Event, ID, Stream, Text, Cause string
			Base64                         []byte
			PID                            int
			Code                           *int `json:"exit_code"`
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		switch {
		case event.Event == "started" && i == 0 && event.ID != "" && event.PID > 0:
		case event.Event == "output" && event.Stream == "stdout":
			streams[0] += event.Text + string(event.Base64)
		case event.Event == "output" && event.Stream == "stderr":
			streams[1] += event.Text + string(event.Base64)
		case event.Event == "exited" && i == len(lines)-1 && event.Code != nil && *event.Code == 3 && event.Cause == "exited":
		default:
			t.Errorf("unexpected %q", line)
		}
	}
	if got.code != 3 || got.errOut != "" || streams != [2]string{"out\n\xff", "err\n"} {
		t.Errorf("exit code %d, stderr %q, output %q", got.code, got.errOut, streams)
	}
	got = runCommand(t, command(t, "run", "--json=result", "--", "sh", "-c", "echo out; kill -9 $$"))
	var end map[string]any
	if err := json.Unmarshal([]byte(got.out), &end); err != nil || got.code != 137 || got.errOut != "out\n" || end["signal"] != "SIGKILL" || end["event"] != nil {
		t.Errorf("the result is %+v, %v", got, err)
	}
	for flag, want := range map[string]string{"--json=all": "use --json or --json=result", "-ti": "is for a person"} {
		if got := runCommand(t, command(t, "run", "--json", flag, "--", "true")); got.code != codeUsage || !strings.Contains(got.errOut, want) {
			t.Errorf("%s: %+v", flag, got)
		}
	}
}
