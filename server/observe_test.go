package server_test

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/testproc"
)

func TestWatchProcess_ReplaysAfterCursor(t *testing.T) {
	f := newFixture(t)
	f.start(shell("p", "echo one; echo two >&2"))
	f.waitClosed("p")
	all := f.watch(&execwirev1.WatchProcessRequest{ProcessId: "p"})
	if all.stdout() != "one\n" || all.stderr() != "two\n" || all.closed == nil {
		t.Fatalf("replayed %q and %q", all.stdout(), all.stderr())
	}
	rest := f.watch(&execwirev1.WatchProcessRequest{ProcessId: "p", AfterSeq: all.seq - 2})
	if rest.stdout() != "" || rest.exit == nil || rest.closed == nil {
		t.Errorf("after the output: %+v", rest)
	}
	end := f.watch(&execwirev1.WatchProcessRequest{ProcessId: "p", AfterSeq: all.seq})
	if end.seq != all.seq {
		t.Errorf("received event %d after the end", end.seq)
	}
}

func TestWatchProcess_FutureCursor_Fails(t *testing.T) {
	f := newFixture(t)
	f.start(withStdin(command("p", "cat")))
	stream, err := f.processes.WatchProcess(f.ctx, &execwirev1.WatchProcessRequest{ProcessId: "p", AfterSeq: 5})
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	expectFailure(t, err, codes.OutOfRange, execwirev1.ErrorReason_ERROR_REASON_SEQ_NOT_REACHED)
}

func TestWatchProcess_Evicted_ReportsExactGap(t *testing.T) {
	f := newFixture(t)
	const size = 4 << 20
	f.start(command("p", testproc.Argv("flood", "-bytes", fmt.Sprint(size))...))
	f.waitClosed("p")
	o := f.watch(&execwirev1.WatchProcessRequest{ProcessId: "p"})
	if len(o.gaps) != 1 || o.gaps[0].GetDroppedBytes()+uint64(len(o.stdout())) != size {
		t.Fatalf("gaps %v and %d bytes are not %d together", o.gaps, len(o.stdout()), size)
	}
	want, err := io.ReadAll(testproc.StdoutPattern.Reader(size))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(want, []byte(o.stdout())) {
		t.Error("what was retained is not the end of what was written")
	}
}

func TestReadOutput_TooManyReaders_ReportsLimit(t *testing.T) {
	f := newFixture(t, func(s *settings) { s.limits.ReadersPerProcess = 2 })
	f.start(shell("p", "echo x; exec sleep 1000"))
	for range 2 {
		stream, err := f.processes.WatchProcess(f.ctx, &execwirev1.WatchProcessRequest{ProcessId: "p"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := f.processes.ReadOutput(f.ctx, &execwirev1.ReadOutputRequest{ProcessId: "p"})
	expectFailure(t, err, codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_READERS)
}

func TestReadOutput_MaxBytes_IsRespected(t *testing.T) {
	f := newFixture(t)
	// Three writes that the server reads one by one.
	f.start(withStdin(shell("p", "while read -r line; do echo $line; done")))
	for i := range 3 {
		if _, err := f.processes.WriteStdin(f.ctx, &execwirev1.WriteStdinRequest{ProcessId: "p", Data: []byte("123456\n")}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.processes.ReadOutput(f.ctx, &execwirev1.ReadOutputRequest{ProcessId: "p", AfterSeq: uint64(i), Wait: seconds(20)}); err != nil {
			t.Fatal(err)
		}
	}
	for budget, want := range map[uint32]int{0: 1, 1: 1, 13: 1, 14: 2, 20: 2, 21: 3, 1 << 20: 3} {
		resp, err := f.processes.ReadOutput(f.ctx, &execwirev1.ReadOutputRequest{ProcessId: "p", MaxBytes: proto.Uint32(budget)})
		if err != nil {
			t.Fatal(err)
		}
		if len(resp.GetEvents()) != want || resp.GetNextAfterSeq() != uint64(want) || resp.GetLastSeq() != 3 {
			t.Errorf("max_bytes %d: %d events, next %d of %d; want %d", budget, len(resp.GetEvents()), resp.GetNextAfterSeq(), resp.GetLastSeq(), want)
		}
	}
}

func TestReadOutput_WaitsForOutput(t *testing.T) {
	f := newFixture(t)
	f.start(withStdin(command("p", "cat")))
	empty, err := f.processes.ReadOutput(f.ctx, &execwirev1.ReadOutputRequest{ProcessId: "p", Wait: seconds(0.02)})
	if err != nil || len(empty.GetEvents()) != 0 || empty.GetNextAfterSeq() != 0 || empty.GetClosed() {
		t.Fatalf("without output and wait the answer is %v, %v", empty, err)
	}
	answer := make(chan *execwirev1.ReadOutputResponse, 1)
	go func() {
		resp, _ := f.processes.ReadOutput(f.ctx, &execwirev1.ReadOutputRequest{ProcessId: "p", Wait: seconds(20)})
		answer <- resp
	}()
	if _, err := f.processes.WriteStdin(f.ctx, &execwirev1.WriteStdinRequest{ProcessId: "p", Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if resp := <-answer; string(resp.GetEvents()[0].GetOutput().GetData()) != "x" {
		t.Errorf("the wait ended with %v", resp)
	}
	if _, err := f.processes.CloseStdin(f.ctx, &execwirev1.CloseStdinRequest{ProcessId: "p"}); err != nil {
		t.Fatal(err)
	}
	f.waitClosed("p")
	last, err := f.processes.ReadOutput(f.ctx, &execwirev1.ReadOutputRequest{ProcessId: "p", AfterSeq: 1})
	if err != nil || !last.GetClosed() || last.GetNextAfterSeq() != last.GetLastSeq() || last.GetExit() == nil {
		t.Errorf("the end is %v, %v", last, err)
	}
}

func TestSnapshot_HasHeadAndTailOfEachStream(t *testing.T) {
	f := newFixture(t, func(s *settings) { s.limits.SnapshotBytes = 4 << 10 })
	const size = 3 << 20
	f.start(shell("p", fmt.Sprintf("echo alone >&2; printf begin; head -c %d /dev/zero; printf end", size)))
	f.waitClosed("p")
	resp, err := f.processes.SnapshotOutput(f.ctx, &execwirev1.SnapshotOutputRequest{ProcessId: "p"})
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr := resp.GetStreams()[0], resp.GetStreams()[1]
	if !strings.HasPrefix(string(stdout.GetHead()), "begin") || !strings.HasSuffix(string(stdout.GetTail()), "end") {
		t.Errorf("the head of stdout is %q and the tail %q", stdout.GetHead()[:8], stdout.GetTail()[len(stdout.GetTail())-8:])
	}
	shown := uint64(len(stdout.GetHead()) + len(stdout.GetTail()))
	if stdout.GetTotalBytes() != size+8 || shown+stdout.GetOmittedBytes() != size+8 || len(stdout.GetHead()) != 4<<10 || len(stdout.GetTail()) != 4<<10 {
		t.Errorf("%d shown, %d omitted, %d in total", shown, stdout.GetOmittedBytes(), stdout.GetTotalBytes())
	}
	if string(stderr.GetHead())+string(stderr.GetTail()) != "alone\n" || stderr.GetOmittedBytes() != 0 {
		t.Errorf("stdout evicted stderr: %v", stderr)
	}
}

// A snapshot that describes the process as closed has all of its output.
func TestSnapshot_OfClosedProcess_HasAllOutput(t *testing.T) {
	const size = 3 << 20 // copying it takes longer than the end of the process
	f := newFixture(t, func(s *settings) { s.limits.SnapshotBytes = size })
	processes := 20
	if testing.Short() {
		processes = 10
	}
	for i := range processes {
		id := fmt.Sprint("p", i)
		f.start(shell(id, fmt.Sprintf("head -c %d /dev/zero; sleep 0.02; printf end", size)))
		for closed := false; !closed; {
			resp, err := f.processes.SnapshotOutput(f.ctx, &execwirev1.SnapshotOutputRequest{ProcessId: id})
			if err != nil {
				t.Fatal(err)
			}
			closed = resp.GetProcess().GetState() == execwirev1.ProcessState_PROCESS_STATE_CLOSED
			if total := resp.GetStreams()[0].GetTotalBytes(); closed && total != size+3 {
				t.Fatalf("the process has closed, and the snapshot has %d of %d bytes", total, size+3)
			}
			if resp.GetLastSeq() < resp.GetProcess().GetLastSeq() {
				t.Fatalf("the snapshot was made after seq %d of the process, and its last seq is %d", resp.GetProcess().GetLastSeq(), resp.GetLastSeq())
			}
		}
	}
}

func TestListProcesses_PagesByID(t *testing.T) {
	f := newFixture(t)
	for _, id := range []string{"c", "a", "b"} {
		f.start(shell(id, "true"))
	}
	var ids []string
	for token := ""; ; {
		resp, err := f.processes.ListProcesses(f.ctx, &execwirev1.ListProcessesRequest{PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range resp.GetProcesses() {
			ids = append(ids, p.GetProcessId())
		}
		if token = resp.GetNextPageToken(); token == "" {
			break
		}
	}
	if strings.Join(ids, "") != "abc" {
		t.Errorf("listed %v", ids)
	}
}

func TestPrincipals_AreIsolated(t *testing.T) {
	current := auth.Principal{Name: "one"}
	f := newFixture(t, func(s *settings) { s.principal = func() auth.Principal { return current } })
	f.start(command("p", "sleep", "1000"))
	current = auth.Principal{Name: "two"}
	_, err := f.processes.GetProcess(f.ctx, &execwirev1.GetProcessRequest{ProcessId: "p"})
	expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND)
	f.start(command("p", "sleep", "1000")) // the id is free for another principal
}

func TestRecord_RetentionOver_IsRemoved(t *testing.T) {
	f := newFixture(t, func(s *settings) { s.sessions.ClosedRetention = 10 * time.Millisecond })
	f.start(shell("p", "true"))
	for f.ctx.Err() == nil {
		if _, err := f.processes.StartProcess(f.ctx, shell("p", "true; true")); err == nil {
			return
		}
	}
	t.Error("the id was not free again")
}

func TestWriteStdin_SameWriteID_AppliesOnce(t *testing.T) {
	f := newFixture(t)
	f.start(withStdin(command("p", "cat")))
	for _, w := range []struct{ id, data string }{{"1", "a"}, {"1", "a"}, {"2", "b"}, {"1", "a"}, {"", "c"}, {"", "c"}} {
		if _, err := f.processes.WriteStdin(f.ctx, &execwirev1.WriteStdinRequest{ProcessId: "p", WriteId: w.id, Data: []byte(w.data)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.processes.CloseStdin(f.ctx, &execwirev1.CloseStdinRequest{ProcessId: "p"}); err != nil {
		t.Fatal(err)
	}
	if got := f.watch(&execwirev1.WatchProcessRequest{ProcessId: "p"}).stdout(); got != "abcc" {
		t.Errorf("cat read %q", got)
	}
	_, err := f.processes.WriteStdin(f.ctx, &execwirev1.WriteStdinRequest{ProcessId: "p", Data: []byte("late")})
	expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_STDIN_CLOSED)
}

func TestTerminal_ResizeAndSignals(t *testing.T) {
	f := newFixture(t)
	f.start(withTerminal(shell("tty", "stty size; trap 'stty size; exit' WINCH; while :; do sleep 0.01; done"), 33, 101))
	if _, err := f.processes.CloseStdin(f.ctx, &execwirev1.CloseStdinRequest{ProcessId: "tty"}); err != nil {
		expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_STDIN_IS_TERMINAL)
	} else {
		t.Error("CloseStdin of a terminal succeeded")
	}
	for seq := uint64(0); ; { // the script sets the trap after it has printed the first size
		resp, err := f.processes.ReadOutput(f.ctx, &execwirev1.ReadOutputRequest{ProcessId: "tty", AfterSeq: seq, Wait: seconds(20)})
		if err != nil {
			t.Fatal(err)
		}
		if seq = resp.GetNextAfterSeq(); seq > 0 {
			break
		}
	}
	resize := &execwirev1.ResizeTerminalRequest{ProcessId: "tty", Size: &execwirev1.TerminalSize{Rows: 44, Columns: 132}}
	for size := uint32(132); ; size++ { // until the trap is set
		resize.Size.Columns = size
		if _, err := f.processes.ResizeTerminal(f.ctx, resize); err != nil {
			break
		}
		resp, err := f.processes.WaitProcess(f.ctx, &execwirev1.WaitProcessRequest{ProcessId: "tty", Wait: seconds(0.2)})
		if err != nil {
			t.Fatal(err)
		}
		if resp.GetSatisfied() {
			break
		}
	}
	output := f.watch(&execwirev1.WatchProcessRequest{ProcessId: "tty"}).terminal()
	if !strings.HasPrefix(output, "33 101\r\n44 1") {
		t.Errorf("the terminal's output is %q", output)
	}

	f.start(command("pipe", "sleep", "1000"))
	_, err := f.processes.ResizeTerminal(f.ctx, &execwirev1.ResizeTerminalRequest{ProcessId: "pipe", Size: &execwirev1.TerminalSize{Rows: 1, Columns: 1}})
	expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_NOT_A_TERMINAL)
	_, err = f.processes.WriteStdin(f.ctx, &execwirev1.WriteStdinRequest{ProcessId: "pipe", Data: []byte("x")})
	expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_STDIN_NOT_PIPED)
	if _, err := f.processes.SignalProcess(f.ctx, &execwirev1.SignalProcessRequest{ProcessId: "pipe", Signal: execwirev1.Signal_SIGNAL_USR1}); err != nil {
		t.Fatal(err)
	}
	exit := f.waitClosed("pipe").GetExit()
	if exit.GetSignal() != execwirev1.Signal_SIGNAL_USR1 || exit.GetCause() != execwirev1.ExitCause_EXIT_CAUSE_EXITED {
		t.Errorf("exit is %v", exit)
	}
	_, err = f.processes.SignalProcess(f.ctx, &execwirev1.SignalProcessRequest{ProcessId: "pipe", Signal: execwirev1.Signal_SIGNAL_TERM})
	expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_PROCESS_EXITED)
}

func TestTerminate_GracefulAndForced(t *testing.T) {
	f := newFixture(t)
	f.start(command("polite", testproc.Argv("trap-term")...))
	f.start(command("deaf", testproc.Argv("ignore-term")...))
	for _, id := range []string{"polite", "deaf"} { // both print when they are ready
		if _, err := f.processes.ReadOutput(f.ctx, &execwirev1.ReadOutputRequest{ProcessId: id, Wait: seconds(20)}); err != nil {
			t.Fatal(err)
		}
	}
	terminate := func(id string, timeout float64) *execwirev1.TerminateProcessResponse {
		resp, err := f.processes.TerminateProcess(f.ctx, &execwirev1.TerminateProcessRequest{ProcessId: id, Termination: &execwirev1.Termination{
			Mode: &execwirev1.Termination_Graceful{Graceful: &execwirev1.GracefulTermination{Timeout: seconds(timeout)}}}})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	polite := terminate("polite", 20)
	if polite.GetExit().GetExitCode() != 7 || !polite.GetWasRunning() || polite.GetExit().GetCause() != execwirev1.ExitCause_EXIT_CAUSE_TERMINATED {
		t.Errorf("polite: %v", polite)
	}
	deaf := terminate("deaf", 0.05)
	if deaf.GetExit().GetSignal() != execwirev1.Signal_SIGNAL_KILL || deaf.GetVerifiedEmpty() || deaf.GetMethod() != execwirev1.KillMethod_KILL_METHOD_PROCESS_GROUP {
		t.Errorf("deaf: %v", deaf)
	}
	f.waitClosed("deaf")
	again := terminate("deaf", 1)
	if again.GetWasRunning() || again.GetMethod() != execwirev1.KillMethod_KILL_METHOD_UNSPECIFIED {
		t.Errorf("again: %v", again)
	}
}

func TestTimeout_IsExitCause(t *testing.T) {
	f := newFixture(t)
	req := command("p", "sleep", "1000")
	req.Limits = &execwirev1.ProcessLimits{Timeout: seconds(0.05)}
	f.start(req)
	if exit := f.waitClosed("p").GetExit(); exit.GetCause() != execwirev1.ExitCause_EXIT_CAUSE_TIMEOUT || exit.GetSignal() != execwirev1.Signal_SIGNAL_KILL {
		t.Errorf("exit is %v", exit)
	}
}

func TestEnvironment_ExactOrByPolicy(t *testing.T) {
	f := newFixture(t)
	f.start(&execwirev1.StartProcessRequest{ProcessId: "exact", Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Prepared{
		Prepared: &execwirev1.PreparedCommand{Executable: "/usr/bin/env", Argv: []string{"env"}, WorkingDirectory: "/", Env: map[string]string{"ONLY": "this"}}}}})
	if got := f.watch(&execwirev1.WatchProcessRequest{ProcessId: "exact"}).stdout(); got != "ONLY=this\n" {
		t.Errorf("the exact environment is %q", got)
	}
	req := command("policy", "/usr/bin/env")
	direct := req.GetCommand().GetDirect()
	direct.Env = map[string]string{"HOME": "/override"}
	direct.EnvironmentPolicy = &execwirev1.EnvironmentPolicy{Inherit: execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_ALL}
	f.start(req)
	got := f.watch(&execwirev1.WatchProcessRequest{ProcessId: "policy"}).stdout()
	if !strings.Contains(got, "HOME=/override\n") || !strings.Contains(got, "PATH=/usr/bin:/bin\n") || strings.Contains(got, "hidden") {
		t.Errorf("the environment by policy is %q", got)
	}
}

func TestGetEnvironment_DescribesMachine(t *testing.T) {
	f := newFixture(t)
	resp, err := f.environ.GetEnvironment(f.ctx, &execwirev1.GetEnvironmentRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if resp.GetOperatingSystem() != "linux" || !strings.HasPrefix(resp.GetShell(), "/") || resp.GetServerVersion() != "test" ||
		resp.GetKernelRelease() == "" || resp.GetWorkingDirectory() == "" || resp.GetCpuCount() == 0 {
		t.Errorf("the machine is %v", resp)
	}
	if !slices.Contains(resp.GetFeatures(), execwirev1.Feature_FEATURE_FILES) || resp.GetLimits().GetReadFileBytes() != 1<<20 {
		t.Errorf("files: %v, features %v", resp.GetLimits(), resp.GetFeatures())
	}
	if l := resp.GetLimits(); l.GetWindowBytes() != 1<<20 || l.GetMessageBytes() != 4<<20 || l.GetMaxWait().AsDuration() != time.Minute {
		t.Errorf("the limits are %v", l)
	}
	if l := resp.GetLimits(); l.GetUploadsPerPrincipal() != 4 || l.GetUploadRetention().AsDuration() != 10*time.Minute {
		t.Errorf("the limits of uploads are %v", l)
	}
	if l := resp.GetLimits(); l.GetWatchesPerPrincipal() != 10 || l.GetWatchedDirectoriesPerWatch() != 1000 ||
		l.GetWatchPendingBytes() != 1<<20 || l.GetAwaitedPathsPerPrincipal() != 2000 {
		t.Errorf("the limits of watches are %v", l)
	}
	if resp.GetKillMethod() != execwirev1.KillMethod_KILL_METHOD_DESCENDANTS || !slices.Contains(resp.GetFeatures(), execwirev1.Feature_FEATURE_KILL_TREE) {
		t.Errorf("killing: %v, features %v", resp.GetKillMethod(), resp.GetFeatures())
	}
	if len(resp.GetSandboxBackends()) != 0 {
		t.Errorf("reported sandbox backends %v", resp.GetSandboxBackends())
	}
}
