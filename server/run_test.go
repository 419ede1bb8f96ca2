package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/testowner"
	"github.com/execwire/execwire/internal/testproc"
)

// owner is an owner of a process, in either form.
type owner struct {
	f       *fixture
	stream  testowner.Stream
	cut     context.CancelCauseFunc
	started *execwirev1.RunStarted
	out     *output
	stdin   uint64                    // accepted
	refused []*execwirev1.RunRejected // in order
}

func (f *fixture) open(first *execwirev1.RunProcessRequest, afterSeq uint64) *owner {
	f.t.Helper()
	ctx, cut := context.WithCancelCause(f.ctx)
	stream, err := f.own(ctx, f.processes)
	if err != nil {
		f.t.Fatal(err)
	}
	o := &owner{f: f, stream: stream, cut: cut, out: newOutput(f.t, afterSeq)}
	o.send(first)
	for o.started == nil {
		if err := o.recv(); err != nil {
			f.t.Fatalf("RunProcess: %v", err)
		}
	}
	return o
}

func (f *fixture) run(req *execwirev1.StartProcessRequest) *owner {
	f.t.Helper()
	return f.open(startMessage(req, nil), 0)
}

func startMessage(req *execwirev1.StartProcessRequest, grace *durationpb.Duration) *execwirev1.RunProcessRequest {
	return &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: &execwirev1.RunStart{Process: req, Grace: grace}}}
}

func (f *fixture) resume(id string, afterSeq uint64) *owner {
	f.t.Helper()
	return f.open(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Resume{
		Resume: &execwirev1.RunResume{ProcessId: id, AfterSeq: afterSeq}}}, afterSeq)
}

// send sends a message. If the stream has ended, recv returns the reason.
func (o *owner) send(m *execwirev1.RunProcessRequest) {
	o.f.t.Helper()
	if err := o.stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
		o.f.t.Fatalf("sending %v: %v", m, err)
	}
}

func (o *owner) write(offset uint64, data string, end bool) {
	o.f.t.Helper()
	o.send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Stdin{
		Stdin: &execwirev1.RunStdin{Offset: offset, Data: []byte(data), EndOfFile: end}}})
}

func (o *owner) acknowledge(seq uint64) {
	o.f.t.Helper()
	o.send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Acknowledge{Acknowledge: &execwirev1.RunAcknowledge{Seq: seq}}})
}

// recv receives one message and records its content.
func (o *owner) recv() error {
	o.f.t.Helper()
	m, err := o.stream.Recv()
	if err != nil {
		return err
	}
	switch m := m.GetMessage().(type) {
	case *execwirev1.RunProcessResponse_Started:
		o.started = m.Started
	case *execwirev1.RunProcessResponse_Events:
		o.out.add(m.Events.GetEvents()...)
	case *execwirev1.RunProcessResponse_StdinAccepted:
		o.stdin = m.StdinAccepted.GetOffset()
	case *execwirev1.RunProcessResponse_Rejected:
		o.refused = append(o.refused, m.Rejected)
	}
	return nil
}

// until receives messages until the condition holds.
func (o *owner) until(what string, holds func() bool) {
	o.f.t.Helper()
	for !holds() {
		if err := o.recv(); err != nil {
			o.f.t.Fatalf("waiting for %s: %v", what, err)
		}
	}
}

// end receives and acknowledges messages until the stream ends.
func (o *owner) end() error {
	o.f.t.Helper()
	for {
		if err := o.recv(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		o.acknowledge(o.out.seq)
	}
}

func (o *owner) mustEnd() {
	o.f.t.Helper()
	if err := o.end(); err != nil {
		o.f.t.Fatalf("RunProcess: %v", err)
	}
	if o.out.exit == nil || o.out.closed == nil {
		o.f.t.Fatalf("the stream ended without an exit (%v) or a close (%v)", o.out.exit, o.out.closed)
	}
}

func TestRun_SendsOutputThenExitThenClosed(t *testing.T) {
	inEachForm(t, func(t *testing.T, form func(*settings)) {
		o := newFixture(t, form).run(shell("p", "echo out; echo err >&2; exit 7"))
		o.mustEnd()
		if o.out.stdout() != "out\n" || o.out.stderr() != "err\n" {
			t.Errorf("output is %q and %q", o.out.stdout(), o.out.stderr())
		}
		if code := o.out.exit.GetExitCode(); code != 7 || o.out.exit.GetCause() != execwirev1.ExitCause_EXIT_CAUSE_EXITED {
			t.Errorf("exit is %v", o.out.exit)
		}
		for _, total := range o.out.closed.GetTotals() {
			if got := uint64(len(o.out.bytes[total.GetStream()])); got != total.GetBytes() {
				t.Errorf("%v: received %d bytes of %d", total.GetStream(), got, total.GetBytes())
			}
		}
	})
}

func TestRun_WritesStdinAndReportsOffset(t *testing.T) {
	inEachForm(t, func(t *testing.T, form func(*settings)) {
		o := newFixture(t, form).run(withStdin(command("p", "cat")))
		o.write(0, "hello ", false)
		o.write(6, "world", true)
		o.until("all input to be accepted", func() bool { return o.stdin == 11 })
		o.mustEnd()
		if o.out.stdout() != "hello world" {
			t.Errorf("cat wrote %q", o.out.stdout())
		}
	})
}

func TestRun_HalfClose_EndsStdinAndDeliversAll(t *testing.T) {
	f := newFixture(t)
	// More than a window, and the client does not acknowledge.
	o := f.run(withStdin(shell("p", fmt.Sprintf("cat; head -c %d /dev/zero", 3<<20))))
	o.write(0, "first ", false)
	if err := o.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for {
		if err := o.recv(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if got := len(o.out.stdout()); got != 3<<20+6 || len(o.out.gaps) != 0 {
		t.Errorf("received %d bytes, with gaps %v", got, o.out.gaps)
	}
}

func TestRun_NoAcknowledgement_BlocksProcess(t *testing.T) {
	inEachForm(t, func(t *testing.T, form func(*settings)) {
		f := newFixture(t, form)
		o := f.run(command("p", testproc.Argv("flood", "-bytes", fmt.Sprint(8<<20))...))
		window := int(o.started.GetOutputWindowBytes())
		// A quarter of the window is reserved for stderr, and up to 4 KiB may stay unused: see
		// eventlog.Writer.Buffer.
		o.until("the window to be used up", func() bool { return len(o.out.stdout()) > window*3/4-4096 })
		if got := len(o.out.stdout()); got > window {
			t.Errorf("received %d bytes without acknowledgement, the window is %d", got, window)
		}
		p, err := f.processes.GetProcess(f.ctx, &execwirev1.GetProcessRequest{ProcessId: "p"})
		if err != nil || p.GetProcess().GetState() != execwirev1.ProcessState_PROCESS_STATE_RUNNING || !p.GetProcess().GetOwned() {
			t.Fatalf("the process is %v, %v; it should be blocked and owned", p, err)
		}
		o.acknowledge(o.out.seq)
		o.mustEnd()
		var want bytes.Buffer
		if _, err := io.Copy(&want, testproc.StdoutPattern.Reader(8<<20)); err != nil {
			t.Fatal(err)
		}
		if o.out.stdout() != want.String() {
			t.Errorf("the %d bytes received differ from those written", len(o.out.stdout()))
		}
	})
}

func TestRun_ResumeAfterCut_LosesNothing(t *testing.T) {
	inEachForm(t, func(t *testing.T, form func(*settings)) {
		f := newFixture(t, form)
		o := f.run(withStdin(command("p", "cat")))
		o.write(0, "one", false)
		o.until("the echo", func() bool { return o.out.stdout() == "one" && o.stdin == 3 })
		o.write(3, "two", false) // in flight when the connection is cut
		o.cut(errors.New("cut"))

		again := f.resume("p", o.out.seq)
		if !again.started.GetResumed() {
			t.Error("the answer does not report a resume")
		}
		again.write(3, "two", false)
		again.write(6, "three", true)
		again.mustEnd()
		if got := o.out.stdout() + again.out.stdout(); got != "onetwothree" {
			t.Errorf("the output of both streams is %q", got)
		}
	})
}

func TestRun_RepeatedStart_FindsProcess(t *testing.T) {
	inEachForm(t, func(t *testing.T, form func(*settings)) {
		f := newFixture(t, form)
		req := shell("p", "echo once; cat")
		o := f.run(withStdin(req))
		o.until("output", func() bool { return o.out.stdout() == "once\n" })
		o.cut(errors.New("cut"))

		again := f.run(req)
		if !again.started.GetResumed() || again.started.GetProcess().GetPid() != o.started.GetProcess().GetPid() {
			t.Errorf("a repeated start started another process: %v", again.started)
		}
		again.write(0, "", true)
		again.mustEnd()
		if again.out.stdout() != "once\n" {
			t.Errorf("the output of the second stream is %q", again.out.stdout())
		}
		_, err := f.processes.StartProcess(f.ctx, shell("p", "echo different"))
		expectFailure(t, err, codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS)
	})
}

// A retry of a start that the server before this one may have carried out.
func TestRun_RetryAtRestartedServer_IsRefused(t *testing.T) {
	inEachForm(t, func(t *testing.T, form func(*settings)) {
		f := newFixture(t, form)
		first := withStdin(command("p", "cat"))
		retry := func(ago time.Duration) *execwirev1.StartProcessRequest {
			request := proto.CloneOf(first)
			request.FirstSentAgo = durationpb.New(ago)
			return request
		}
		_, err := f.processes.StartProcess(f.ctx, retry(time.Hour))
		expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND)

		f.run(retry(time.Nanosecond)).cut(errors.New("cut")) // the server ran already
		again := f.run(retry(time.Hour))
		if !again.started.GetResumed() {
			t.Errorf("a retry did not find its process: %v", again.started)
		}
		again.write(0, "", true)
		again.mustEnd()
	})
}

func TestRun_Resume_TakesOver(t *testing.T) {
	inEachForm(t, func(t *testing.T, form func(*settings)) {
		f := newFixture(t, form)
		first := f.run(withStdin(command("p", "cat")))
		second := f.resume("p", 0)
		expectFailure(t, first.end(), codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_PROCESS_TAKEN_OVER)
		second.write(0, "x", true)
		second.mustEnd()
		if second.out.stdout() != "x" {
			t.Errorf("the new owner read %q", second.out.stdout())
		}
	})
}

func TestRun_LostOwner_TerminatesAfterGrace(t *testing.T) {
	inEachForm(t, func(t *testing.T, form func(*settings)) {
		f := newFixture(t, form)
		o := f.open(startMessage(command("p", "sleep", "1000"), durationpb.New(50*time.Millisecond)), 0)
		o.cut(errors.New("cut"))
		exit := f.waitClosed("p").GetExit()
		if exit.GetCause() != execwirev1.ExitCause_EXIT_CAUSE_TERMINATED || exit.GetSignal() != execwirev1.Signal_SIGNAL_KILL {
			t.Errorf("exit is %v", exit)
		}
	})
}

func TestRun_GraceAboveMaximum_StartsNothing(t *testing.T) {
	f := newFixture(t)
	stream, err := f.processes.RunProcess(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(startMessage(shell("p", "true"), durationpb.New(2*time.Hour))); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	expectFailure(t, err, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
	_, err = f.processes.GetProcess(f.ctx, &execwirev1.GetProcessRequest{ProcessId: "p"})
	expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND)
}

// An owner that detaches without acknowledging the end leaves no process that waits for it.
func TestRun_DetachAfterClosed_LeavesNoOwner(t *testing.T) {
	inEachForm(t, func(t *testing.T, form func(*settings)) {
		f := newFixture(t, form, func(s *settings) { s.sessions.UnseenRetention, s.sessions.UnseenPerPrincipal = time.Hour, 1000 })
		for i := range 100 {
			req := shell("p", "true")
			req.StartId, req.ReplaceClosed = fmt.Sprint(i), true
			o := f.run(req)
			o.until("the end", func() bool { return o.out.closed != nil })
			o.send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Detach{Detach: &execwirev1.RunDetach{}}})
			for err := error(nil); err != io.EOF; err = o.recv() {
				if err != nil {
					t.Fatalf("detaching ended with %v", err)
				}
			}
		}
	})
}

func TestRun_Detach_LeavesProcessRunning(t *testing.T) {
	inEachForm(t, func(t *testing.T, form func(*settings)) {
		f := newFixture(t, form)
		o := f.open(startMessage(withStdin(command("p", "cat")), durationpb.New(0)), 0)
		o.send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Detach{Detach: &execwirev1.RunDetach{}}})
		if err := o.end(); err != nil {
			t.Fatalf("detaching ended with %v", err)
		}
		resp, err := f.processes.GetProcess(f.ctx, &execwirev1.GetProcessRequest{ProcessId: "p"})
		if err != nil || resp.GetProcess().GetState() != execwirev1.ProcessState_PROCESS_STATE_RUNNING || resp.GetProcess().GetOwned() {
			t.Fatalf("after detaching the process is %v, %v", resp, err)
		}
	})
}

func TestRun_RejectedMessage_KeepsStream(t *testing.T) {
	o := newFixture(t).run(withStdin(command("p", "cat")))
	o.send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Resize{Resize: &execwirev1.TerminalSize{Rows: 1, Columns: 1}}})
	o.send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Resize{Resize: &execwirev1.TerminalSize{}}})
	o.send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Signal{Signal: &execwirev1.RunSignal{Signal: 99}}})
	o.send(&execwirev1.RunProcessRequest{})
	o.until("four rejections", func() bool { return len(o.refused) == 4 })
	for i, want := range []execwirev1.ErrorReason{
		execwirev1.ErrorReason_ERROR_REASON_NOT_A_TERMINAL,
		execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD,
		execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD,
		execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD,
	} {
		if o.refused[i].GetReason() != want || o.refused[i].GetMessage() == "" {
			t.Errorf("rejection %d is %v, want %v", i, o.refused[i], want)
		}
	}
	o.write(0, "still here", true)
	o.mustEnd()
	if o.out.stdout() != "still here" {
		t.Errorf("cat wrote %q", o.out.stdout())
	}
}

func TestRun_ProtocolViolation_EndsStream(t *testing.T) {
	message := func(m *execwirev1.RunProcessRequest) func(*owner) { return func(o *owner) { o.send(m) } }
	tests := []struct {
		name   string
		act    func(*owner)
		code   codes.Code
		reason execwirev1.ErrorReason
	}{
		{"second start", message(startMessage(shell("q", "true"), nil)), codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE},
		{"future acknowledgement", func(o *owner) { o.acknowledge(1000) }, codes.OutOfRange, execwirev1.ErrorReason_ERROR_REASON_SEQ_NOT_REACHED},
		{"gap in the input", func(o *owner) { o.write(1, "x", false) }, codes.OutOfRange, execwirev1.ErrorReason_ERROR_REASON_STDIN_OFFSET_INVALID},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			o := f.run(withStdin(command("p", testproc.Argv("never-read")...)))
			tt.act(o)
			expectFailure(t, o.end(), tt.code, tt.reason)
		})
	}
}

func TestRun_FirstMessageNotStartOrResume_Fails(t *testing.T) {
	f := newFixture(t)
	stream, err := f.processes.RunProcess(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Detach{}}); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE)

	silent, err := f.processes.RunProcess(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := silent.CloseSend(); err != nil {
		t.Fatal(err)
	}
	_, err = silent.Recv()
	expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE)
}

func TestRun_BlockedStdin_DelaysNothingElse(t *testing.T) {
	inEachForm(t, func(t *testing.T, form func(*settings)) {
		o := newFixture(t, form).run(withStdin(command("p", testproc.Argv("never-read")...)))
		o.write(0, strings.Repeat("x", 1<<20), false)
		o.send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Terminate{
			Terminate: &execwirev1.Termination{Mode: &execwirev1.Termination_Force{Force: &execwirev1.ForcedTermination{}}}}})
		o.mustEnd()
		if o.out.exit.GetSignal() != execwirev1.Signal_SIGNAL_KILL {
			t.Errorf("exit is %v", o.out.exit)
		}
	})
}

func TestRun_RejectedStdin_IsReportedOnce(t *testing.T) {
	inEachForm(t, func(t *testing.T, form func(*settings)) {
		o := newFixture(t, form).run(command("p", "sleep", "1000"))
		for i := range 10 {
			o.write(uint64(i), "x", false)
		}
		o.until("a rejection", func() bool { return len(o.refused) > 0 })
		if o.refused[0].GetReason() != execwirev1.ErrorReason_ERROR_REASON_STDIN_NOT_PIPED {
			t.Errorf("the rejection is %v", o.refused[0])
		}
		o.send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Signal{Signal: &execwirev1.RunSignal{Signal: execwirev1.Signal_SIGNAL_TERM}}})
		o.mustEnd()
		if len(o.refused) != 1 {
			t.Errorf("rejected %d times: %v", len(o.refused), o.refused)
		}
	})
}
