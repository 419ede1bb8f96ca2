package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// subscribe initializes a client that subscribes to notifications, and returns the
// ones that the server confirms.
func (cl *client) subscribe(names ...string) []string {
	cl.t.Helper()
	var result struct{ Notifications []string }
	cl.decode(cl.must("initialize", map[string]any{"clientName": "test", "notifications": append([]string{}, names...)}), &result)
	cl.notify("initialized", nil)
	if result.Notifications == nil {
		cl.t.Error("initialize does not confirm notifications")
	}
	return result.Notifications
}

// failedNotice is the parameters of process/failed.
type failedNotice struct {
	Params struct {
		ProcessID string
		Error     wireError
	}
}

func TestNotifications_Subscription(t *testing.T) {
	srv := newTestServer(t)
	for _, test := range []struct{ asked, promised []string }{
		{nil, nil},
		{[]string{"no/such", "", "process/output"}, nil},
		{[]string{"process/failed", "process/failed", "no/such", "process/started"}, []string{"process/started", "process/failed"}},
		{[]string{"process/failed"}, []string{"process/failed"}},
	} {
		if got := srv.connect().subscribe(test.asked...); !slices.Equal(got, test.promised) {
			t.Errorf("a client that asks for %q gets %q", test.asked, got)
		}
	}
	for _, notifications := range []any{1, "process/started", []any{1}} {
		srv.connect().refused("initialize", map[string]any{"clientName": "test", "notifications": notifications}, -32602, "invalid type")
	}
	cl := srv.connect()
	if got := cl.must("initialize", map[string]any{"clientName": "test", "notifications": nil}); strings.Contains(string(got), `"notifications"`) {
		t.Errorf("a client that did not ask got %s", got)
	}
	cl.notify("initialized", nil)
	cl.start("p", "true")
	cl.call("process/start", startOf("none", "true", "argv", []string{"/no/such"}))
	cl.output("p", 1)
	for _, f := range cl.all() {
		if f.Method == "process/started" || f.Method == "process/failed" {
			t.Errorf("a client that did not ask received %s", f.raw)
		}
	}
}

// The notification is sent between the response and the first output.
func TestStartedNotification_FollowsResponse(t *testing.T) {
	cl := newTestServer(t).connect()
	cl.subscribe("process/started", "process/failed")
	const runs = 50
	asks := map[string]string{}
	for i := range runs {
		id := fmt.Sprint("p", i)
		asks[id] = cl.ask("process/start", startOf(id, "echo hi"))
	}
	for i := range runs {
		cl.event(fmt.Sprint("p", i), "process/closed")
	}
	course := map[string][]string{}
	for _, f := range cl.all() {
		for id, ask := range asks {
			if f.Params.ProcessID == id {
				course[id] = append(course[id], strings.TrimPrefix(f.Method, "process/"))
			} else if string(f.ID) == ask {
				course[id] = append(course[id], "answer")
			}
		}
	}
	for id, got := range course {
		if want := []string{"answer", "started", "output", "exited", "closed"}; !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", id, got, want)
		}
	}
	var started struct {
		Params struct {
			ProcessID   string
			PID         int
			StartedAtMs int64
		}
	}
	if err := json.Unmarshal(cl.event("p7", "process/started").raw, &started); err != nil {
		t.Fatal(err)
	}
	listed := cl.list().Processes
	at := slices.IndexFunc(listed, func(p listAnswerProcess) bool { return p.ProcessID == "p7" })
	if at < 0 || started.Params.PID != listed[at].PID || started.Params.StartedAtMs != listed[at].StartedAtMs {
		t.Errorf("%+v and in the list %+v", started.Params, listed)
	}
}

func TestFailedNotification_StartFails_FollowsResponse(t *testing.T) {
	cl := newTestServer(t).connect()
	cl.subscribe("process/failed")
	cl.start("taken", "exec sleep 1000")
	cl.refused("process/start", startOf("taken", "true"), -32600, "already exists")
	cl.refused("process/start", startOf("malformed", "true", "argv", []string{}), -32602, "argv must not be empty")
	ask := cl.ask("process/start", startOf("~none", "true", "argv", []string{"/no/such"}))
	notice := cl.event("~none", "process/failed")
	answer, answered := cl.wait("the response", func(f frame) bool { return string(f.ID) == ask })
	_, notified := cl.wait("the notification", func(f frame) bool { return f.Method == "process/failed" })
	if notified != answered+1 {
		t.Errorf("the notification does not follow the response: %s", summary(cl.all()))
	}
	var got failedNotice
	cl.decode(notice.raw, &got)
	if got.Params.Error.Code != -32603 || got.Params.Error.Message != answer.Error.Message || got.Params.Error.Data["reason"] != answer.Error.Data["reason"] {
		t.Errorf("the notification is %s, the response %s", notice.raw, answer.raw)
	}
	cl.must("process/list", nil)
	for _, f := range cl.all() {
		if f.Method != "" && f.Params.ProcessID != "~none" {
			t.Errorf("the client received %s", f.raw)
		}
	}
}

// A lost process has failed, whatever it wrote.
func TestFailedNotification_LostProcess(t *testing.T) {
	s, srv := newScriptedServer(t)
	cl := srv.connect()
	cl.subscribe("process/failed")
	exited := exitedEvent(2)
	exited.GetExited().Exit = &execwirev1.ExitRecord{Cause: execwirev1.ExitCause_EXIT_CAUSE_LOST}
	closed := &execwirev1.ProcessEvent{Seq: 3, Event: &execwirev1.ProcessEvent_Closed{Closed: &execwirev1.ProcessClosed{}}}
	s.sendEvents("p", outputEvent(1, 1), exited, closed)
	cl.event("p", "process/closed")
	if got, want := cl.methodsOf("p"), []string{"process/output", "process/exited", "process/failed", "process/closed"}; !slices.Equal(got, want) {
		t.Errorf("the client received %q, want %q", got, want)
	}
	if f := cl.event("p", "process/exited"); f.Params.ExitCode == nil || *f.Params.ExitCode != -1 {
		t.Errorf("%s", f.raw)
	}
	var got failedNotice
	cl.decode(cl.event("p", "process/failed").raw, &got)
	if got.Params.Error.Code != -32603 || got.Params.Error.Data["exitCause"] != "lost" {
		t.Errorf("%+v", got)
	}
}
