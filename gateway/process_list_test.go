package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// listAnswer is the result of process/list.
type listAnswer struct {
	Processes     []listAnswerProcess
	NextPageToken *string
}

type listAnswerProcess struct {
	ProcessID       string
	PID             int
	Argv            []string
	Cwd             string
	Tty             bool
	SandboxType     string
	Rows, Cols      int
	StartedAtMs     int64
	NextSeq         int
	Running, Closed bool
	ExitCode        *int
	ExitCause       *string
}

func (cl *client) list(members ...any) listAnswer {
	cl.t.Helper()
	var a listAnswer
	cl.decode(cl.must("process/list", with(map[string]any{}, members...)), &a)
	return a
}

func TestList(t *testing.T) {
	srv := newTestServer(t)
	cl, _ := srv.attach("")
	other, _ := srv.attach("")
	other.start("of another session", "exec sleep 1000")
	if a := cl.list(); a.Processes == nil || len(a.Processes) != 0 || a.NextPageToken != nil {
		t.Errorf("a session without processes: %+v", a)
	}
	cl.start("~ended", "echo said; exit 3", "cwd", "/tmp")
	cl.event("~ended", "process/closed")
	cl.start("", "exec sleep 1000", "tty", true, "rows", 7, "cols", 9)
	a := cl.list()
	if len(a.Processes) != 2 || a.NextPageToken != nil {
		t.Fatalf("%+v", a)
	}
	running, ended := a.Processes[0], a.Processes[1]
	if running.ProcessID != "" || !running.Running || running.ExitCode != nil || running.ExitCause != nil || running.Closed ||
		!running.Tty || running.Rows != 7 || running.Cols != 9 || running.PID <= 0 || running.StartedAtMs <= 0 || running.Cwd != "file:///" ||
		!slices.Equal(running.Argv, []string{"/bin/sh", "-c", "exec sleep 1000"}) {
		t.Errorf("%+v", running)
	}
	if ended.ProcessID != "~ended" || ended.Running || ended.ExitCode == nil || *ended.ExitCode != 3 || ended.ExitCause == nil ||
		*ended.ExitCause != "exited" || !ended.Closed || ended.Tty || ended.NextSeq != 4 || ended.Cwd != "file:///tmp" {
		t.Errorf("%+v", ended)
	}
	cl.must("process/terminate", map[string]any{"processId": ""})
	cl.event("", "process/closed")
	if p := cl.list().Processes[0]; *p.ExitCause != "terminated" || *p.ExitCode != 137 {
		t.Errorf("%+v", p)
	}
}

func TestList_Pages(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	var want []string
	for i := range 5 {
		id := fmt.Sprint("p", i)
		want = append(want, id)
		cl.start(id, "exec sleep 1000")
	}
	var got []string
	members := []any{"pageSize", 2}
	for pages := 1; ; pages++ {
		a := cl.list(members...)
		for _, p := range a.Processes {
			got = append(got, p.ProcessID)
		}
		if a.NextPageToken == nil {
			if pages != 3 || len(a.Processes) != 1 {
				t.Errorf("page %d, the last, has %d processes", pages, len(a.Processes))
			}
			break
		}
		members = []any{"pageSize", 2, "pageToken", *a.NextPageToken}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the pages list %q", got)
	}
	cl.refused("process/list", map[string]any{"pageSize": 0}, -32602, "`pageSize` is 0: use 1 to 1000")
	cl.refused("process/list", map[string]any{"pageSize": 1001}, -32602, "`pageSize` is 1001: use 1 to 1000")
	cl.refused("process/list", map[string]any{"pageToken": strings.Repeat("x", 2000)}, -32602, "`pageToken` is not")
	if got := cl.must("process/list", nil); !strings.Contains(string(got), `"p4"`) {
		t.Errorf("without parameters: %s", got)
	}
}
