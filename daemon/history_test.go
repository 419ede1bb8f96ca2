package daemon_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/daemon"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
)

// stateServer is a daemon with a state_directory.
type stateServer struct {
	t         *testing.T
	ctx       context.Context
	daemon    *daemon.Daemon
	processes execwirev1.ProcessServiceClient
}

func openWithState(t *testing.T, dir string) *stateServer {
	t.Helper()
	cfg := config.Default()
	cfg.StateDirectory, cfg.ClosedRetention = dir, config.Duration(time.Millisecond)
	d, err := daemon.New(cfg, daemon.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), testTimeout, errors.New("the test hangs"))
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		cancel()
	})
	return &stateServer{t: t, ctx: ctx, daemon: d, processes: execwirev1.NewProcessServiceClient(d.Conn())}
}

func detachedStart(id, script string) *execwirev1.StartProcessRequest {
	return &execwirev1.StartProcessRequest{ProcessId: id, Labels: map[string]string{"job": id},
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
			Direct: &execwirev1.DirectCommand{Argv: []string{"/bin/sh", "-c", script}, WorkingDirectory: "/"}}}}
}

func (s *stateServer) start(request *execwirev1.StartProcessRequest) *execwirev1.Process {
	s.t.Helper()
	answer, err := s.processes.StartProcess(s.ctx, request)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.GetProcess()
}

func (s *stateServer) get(id string) *execwirev1.Process {
	s.t.Helper()
	answer, err := s.processes.GetProcess(s.ctx, &execwirev1.GetProcessRequest{ProcessId: id})
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.GetProcess()
}

// untilRecords waits until as many records contain the text.
func untilRecords(t *testing.T, dir, text string, want int) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(time.Millisecond) {
		files, err := filepath.Glob(filepath.Join(dir, "processes", "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, file := range files {
			if content, err := os.ReadFile(file); err == nil && strings.Contains(string(content), text) {
				found++
			}
		}
		if found == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d records contain %q, want %d", found, len(files), text, want)
		}
	}
}

// What the server knows of detached processes when it is killed, the next one knows: the end
// of those that have ended, and of the others that they ended with the server.
func TestHistory_AfterKill_RecordsAreReadable(t *testing.T) {
	dir, copied := t.TempDir(), t.TempDir()
	before := openWithState(t, dir)
	ended := before.start(detachedStart("ended", "echo out; echo failed >&2; exit 3"))
	before.start(detachedStart("runs", "exec sleep 1000"))
	before.start(detachedStart("loud", "printf %5000s | tr ' ' x"))
	untilRecords(t, dir, `"Cause":"exited"`, 2)
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil { // what a killed server leaves
		t.Fatal(err)
	}
	if err := before.daemon.Close(); err != nil {
		t.Fatal(err)
	}

	s := openWithState(t, copied)
	p := s.get("ended")
	if p.GetState() != execwirev1.ProcessState_PROCESS_STATE_CLOSED || p.GetExit().GetExitCode() != 3 || p.GetExit().GetCause() != execwirev1.ExitCause_EXIT_CAUSE_EXITED ||
		p.GetPid() != ended.GetPid() || !p.GetStartTime().AsTime().Equal(ended.GetStartTime().AsTime()) || p.GetLabels()["job"] != "ended" {
		t.Errorf("what had ended is %v", p)
	}
	exit := s.get("runs").GetExit()
	if exit.GetCause() != execwirev1.ExitCause_EXIT_CAUSE_SERVER_RESTARTED || exit.GetStatus() != nil {
		t.Errorf("what ran ended with %v", exit)
	}
	snapshot, err := s.processes.SnapshotOutput(s.ctx, &execwirev1.SnapshotOutputRequest{ProcessId: "ended"})
	if err != nil || len(snapshot.GetStreams()) != 2 || string(snapshot.GetStreams()[0].GetHead()) != "out\n" || string(snapshot.GetStreams()[1].GetHead()) != "failed\n" {
		t.Errorf("the ends of the output are %v, %v", snapshot, err)
	}
	killed, err := s.processes.TerminateProcess(s.ctx, &execwirev1.TerminateProcessRequest{ProcessId: "runs"})
	if err != nil || killed.GetWasRunning() || killed.GetVerifiedEmpty() {
		t.Errorf("ending what had ended: %v, %v", killed, err)
	}
	untilRecords(t, copied, `"ID":"runs"`, 0) // its exit was seen

	// A retry finds the record, another start with the id is refused. Its reader gets what was kept, and a gap for the rest.
	if again := s.start(detachedStart("ended", "echo out; echo failed >&2; exit 3")); again.GetPid() != ended.GetPid() {
		t.Errorf("a retry finds %v", again)
	}
	if _, err := s.processes.StartProcess(s.ctx, detachedStart("ended", "true")); err == nil || !strings.Contains(err.Error(), "it has ended") {
		t.Errorf("another start with the id: %v", err)
	}
	output, err := s.processes.ReadOutput(s.ctx, &execwirev1.ReadOutputRequest{ProcessId: "ended"})
	if events := output.GetEvents(); err != nil || len(events) != 4 || string(events[0].GetOutput().GetData()) != "out\n" || string(events[1].GetOutput().GetData()) != "failed\n" {
		t.Errorf("the output of what had ended is %v, %v", output, err)
	}
	output, err = s.processes.ReadOutput(s.ctx, &execwirev1.ReadOutputRequest{ProcessId: "loud"})
	if events := output.GetEvents(); err != nil || len(events) != 4 || events[0].GetGap().GetDroppedBytes() != 5000-1024 || string(events[1].GetOutput().GetData()) != strings.Repeat("x", 1024) {
		t.Errorf("the output of what had written much is %v, %v", output, err)
	}
	untilRecords(t, copied, `"ID"`, 0)
}

// A server that shuts down says so in the records; what it ran for an owner has none.
func TestHistory_AfterShutdown_HasItsCause(t *testing.T) {
	dir := t.TempDir()
	before := openWithState(t, dir)
	request := detachedStart("runs", "exec sleep 1000")
	before.start(request)
	owned, err := before.processes.RunProcess(before.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := owned.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: &execwirev1.RunStart{
		Process: detachedStart("owned", "exec sleep 1000")}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := owned.Recv(); err != nil {
		t.Fatal(err)
	}
	untilRecords(t, dir, `"ID"`, 1)
	if err := before.daemon.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the record stays until its exit is seen
		s := openWithState(t, dir)
		list, err := s.processes.ListProcesses(s.ctx, &execwirev1.ListProcessesRequest{})
		if err != nil || len(list.GetProcesses()) != 1 {
			t.Fatalf("there are %v, %v", list, err)
		}
		if exit := s.get("runs").GetExit(); exit.GetCause() != execwirev1.ExitCause_EXIT_CAUSE_SERVER_SHUTDOWN || exit.GetSignal() == 0 {
			t.Errorf("it ended with %v", exit)
		}
		if err := s.daemon.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := openWithState(t, dir)
	replaced := detachedStart("runs", "exec sleep 1000")
	replaced.StartId, replaced.ReplaceClosed = "again", true
	s.start(replaced)
	untilRecords(t, dir, `"ID":"runs"`, 1)
	if state := s.get("runs").GetState(); state != execwirev1.ProcessState_PROCESS_STATE_RUNNING {
		t.Errorf("the new process is %v", state)
	}
}

// A record that cannot be used harms nothing, and its file stays; a record that was replaced goes.
func TestHistory_UnusableRecords_StayOrGo(t *testing.T) {
	dir := t.TempDir()
	before := openWithState(t, dir)
	before.start(detachedStart("p", "echo out"))
	untilRecords(t, dir, `"Cause":"exited"`, 1)
	if err := before.daemon.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "processes", "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][]string{
		"damaged":  {`"Total":4`, `"Total":1`, `"ID":"p"`, `"ID":"damaged"`},
		"newer":    {`"Cause":"exited"`, `"Cause":"unheard of"`, `"ID":"p"`, `"ID":"newer"`},
		"replaced": {`"StartedAt":"20`, `"StartedAt":"19`, `"PID":`, `"PID":1`},
	} {
		if err := os.WriteFile(filepath.Join(dir, "processes", name+".json"), []byte(strings.NewReplacer(change...).Replace(string(whole))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		s := openWithState(t, dir)
		list, err := s.processes.ListProcesses(s.ctx, &execwirev1.ListProcessesRequest{})
		if err != nil || len(list.GetProcesses()) != 1 || list.GetProcesses()[0].GetStartTime().AsTime().Year() < 2000 {
			t.Errorf("there are %v, %v", list, err)
		}
		untilRecords(t, dir, `"ID":"damaged"`, 1)
		untilRecords(t, dir, `"ID":"newer"`, 1)
		untilRecords(t, dir, `"ID":"p"`, 1)
		if err := s.daemon.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStateDirectory_Unusable_IsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.StateDirectory = file
	if _, err := daemon.New(cfg, daemon.Options{}); err == nil || !strings.Contains(err.Error(), "state_directory") {
		t.Errorf("a file as the directory: %v", err)
	}
}
