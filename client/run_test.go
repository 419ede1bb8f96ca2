package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// testEvents is the output of the process of most tests, one event each.
func testEvents() []*execwirev1.ProcessEvent {
	return []*execwirev1.ProcessEvent{
		stdout(1, 0, "one "),
		stderr(2, 0, "oops "),
		stdout(3, 4, "two "),
		exited(4, 7),
		stdout(5, 8, "late"),
		closed(6, 12, 5),
	}
}

// runTestEvents runs a process in a synctest bubble, and checks that everything in
// conversation was received.
func runTestEvents(t *testing.T, options RunOptions, scripts ...script) Exit {
	t.Helper()
	var exit Exit
	synctest.Test(t, func(t *testing.T) {
		_, c := newFake(t, scripts...)
		var out, errOut bytes.Buffer
		options.Process, options.Stdout, options.Stderr = direct("x"), &out, &errOut
		var err error
		exit, err = c.Run(t.Context(), options)
		if err != nil {
			t.Fatalf("Run failed: %v", err)
		}
		if out.String() != "one two late" || errOut.String() != "oops " {
			t.Errorf("got stdout %q and stderr %q", &out, &errOut)
		}
		if exit.Code != 7 || exit.StdoutBytes != 12 || exit.StderrBytes != 5 || exit.DroppedBytes != 0 {
			t.Errorf("got exit %+v", exit)
		}
	})
	return exit
}

func TestRun_WritesEventsInOrder(t *testing.T) {
	t.Run("one message", func(t *testing.T) {
		runTestEvents(t, RunOptions{}, sends(nil, started(0), events(testEvents()...)))
	})
	t.Run("one event per message", func(t *testing.T) {
		runTestEvents(t, RunOptions{}, sends(nil, eachAlone(testEvents())...))
	})
}

func eachAlone(list []*execwirev1.ProcessEvent) []*execwirev1.RunProcessResponse {
	responses := []*execwirev1.RunProcessResponse{started(0)}
	for _, e := range list {
		responses = append(responses, events(e))
	}
	return responses
}

// resumes answers a resume after this seq with the events after it, and rejects any
// other.
func resumes(t *testing.T, after uint64, list []*execwirev1.ProcessEvent) script {
	return func(stream serverStream) error {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		if got := request.GetResume().GetAfterSeq(); request.GetResume() == nil || got != after {
			t.Errorf("opened with %v, want a resume after %d", request, after)
		}
		return sends(nil, started(0), events(list[after:]...))(&replayStream{stream, request})
	}
}

// replayStream returns a message that was already received.
type replayStream struct {
	serverStream
	first *execwirev1.RunProcessRequest
}

func (s *replayStream) Recv() (*execwirev1.RunProcessRequest, error) {
	if first := s.first; first != nil {
		s.first = nil
		return first, nil
	}
	return s.serverStream.Recv()
}

func TestRun_ResumesAfterEachEvent(t *testing.T) {
	list := testEvents()
	for after := range len(list) {
		var lost, resumed int
		options := RunOptions{OnLost: func(error) { lost++ }, OnResumed: func() { resumed++ }}
		exit := runTestEvents(t, options,
			sends(errCut, eachAlone(list[:after])...),
			resumes(t, uint64(after), list))
		if exit.Resumed != 1 || lost != 1 || resumed != 1 {
			t.Errorf("cut after %d events: resumed %d, OnLost %d, OnResumed %d; want 1 each",
				after, exit.Resumed, lost, resumed)
		}
	}
}

func TestRun_CutAfterClosed_IsIgnored(t *testing.T) {
	runTestEvents(t, RunOptions{}, sends(errCut, started(0), events(testEvents()...)))
}

func TestRun_Duplicates_AreSkipped(t *testing.T) {
	list := testEvents()
	runTestEvents(t, RunOptions{},
		sends(errCut, started(0), events(list[:3]...)),
		sends(nil, started(0), events(list[:4]...), events(list...)))
}

func TestRun_UnknownKinds_AreSkipped(t *testing.T) {
	list := testEvents()
	list = slices.Insert(list, 5, &execwirev1.ProcessEvent{Seq: 6})
	list[6].Seq = 7
	runTestEvents(t, RunOptions{},
		sends(nil, started(0), &execwirev1.RunProcessResponse{}, events(list...)))
}

func TestRun_RepeatsSameStart(t *testing.T) {
	var starts []*execwirev1.RunStart
	recording := func(then script) script {
		return func(stream serverStream) error {
			request, err := stream.Recv()
			if err != nil {
				return err
			}
			starts = append(starts, request.GetStart())
			return then(&replayStream{stream, request})
		}
	}
	runTestEvents(t, RunOptions{Grace: new(3 * time.Second)},
		recording(sends(errCut)),
		recording(sends(status.Error(codes.Internal, "stream terminated by RST_STREAM"))),
		recording(sends(nil, started(0), events(testEvents()...))))
	if len(starts) != 3 {
		t.Fatalf("started %d times, want 3", len(starts))
	}
	for _, s := range starts[1:] {
		s.Process.FirstSentAgo = nil
		if !proto.Equal(s, starts[0]) {
			t.Errorf("repeated as %v, first was %v", s, starts[0])
		}
	}
}

func TestRun_GeneratesID(t *testing.T) {
	_, c := newFake(t, func(stream serverStream) error {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		if request.GetStart().GetProcess().GetProcessId() == "" {
			t.Error("started without an id, so the start cannot be repeated")
		}
		return sends(nil, started(0), events(testEvents()...))(&replayStream{stream, request})
	})
	process := direct("x")
	process.ProcessId = ""
	exit, err := c.Run(t.Context(), RunOptions{Process: process})
	if err != nil {
		t.Fatal(err)
	}
	if exit.ProcessID == "" || process.GetProcessId() != "" {
		t.Errorf("exit names %q, the caller's request %q", exit.ProcessID, process.GetProcessId())
	}
}

func TestRun_ReportsGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newFake(t,
			sends(errCut, started(0), events(stdout(1, 0, "one "))),
			sends(nil, started(0), events(gap(4, 20), stdout(4, 8, "end"), stderr(5, 3, "!"),
				gap(7, 2), exited(7, 0), closed(8, 13, 4))))
		var out bytes.Buffer
		var reported uint64
		exit, err := c.Run(t.Context(), RunOptions{
			Process: direct("x"),
			Stdout:  &out,
			OnGap:   func(g *execwirev1.OutputGap) { reported += g.GetDroppedBytes(); out.WriteString("[gap]") },
		})
		if err != nil {
			t.Fatal(err)
		}
		if out.String() != "one [gap]end[gap]" || reported != 22 || exit.DroppedBytes != 9 {
			t.Errorf("got %q, OnGap %d, DroppedBytes %d", &out, reported, exit.DroppedBytes)
		}
	})
}

func TestRun_ProtocolErrors(t *testing.T) {
	noRecord := &execwirev1.ProcessEvent{Seq: 1, Event: &execwirev1.ProcessEvent_Exited{Exited: &execwirev1.ProcessExited{}}}
	says := func(list ...*execwirev1.ProcessEvent) script { return sends(nil, started(0), events(list...)) }
	tests := map[string]struct {
		play    script
		problem string
	}{
		"jump without gap":      {says(stdout(1, 0, "a"), stdout(3, 1, "b")), "seq 3 follows seq 1"},
		"seq 0":                 {says(stdout(0, 0, "a")), "seq 0 follows seq 0"},
		"offset jumps":          {says(stdout(1, 0, "a"), stdout(2, 2, "b")), "offset 2 instead of 1"},
		"offset repeats":        {says(stdout(1, 0, "a"), stdout(2, 0, "a")), "offset 0 instead of 1"},
		"offset back after gap": {says(stdout(1, 0, "a"), gap(3, 5), stdout(3, 0, "b")), "offset 0 instead of 1"},
		"gap goes back":         {says(stdout(1, 0, "a"), gap(2, 5)), "a gap up to seq 2"},
		"gap with a seq":        {says(&execwirev1.ProcessEvent{Seq: 1, Event: gap(2, 5).GetEvent()}), "a gap"},
		"unknown stream":        {says(output(1, 9, 0, "a")), "unknown stream, number 9"},
		"exit without record":   {says(noRecord), "no exit record"},
		"closed without exit":   {says(stdout(1, 0, "a"), closed(2, 1)), "closed without an exit record"},
		"total too high":        {says(stdout(1, 0, "a"), exited(2, 0), closed(3, 2)), "1 bytes of stdout were sent and 2"},
		"total too low":         {says(gap(3, 1), stdout(3, 5, "a"), exited(4, 0), closed(5, 2)), "6 bytes of stdout were sent and 2"},
		"event after closed":    {says(exited(1, 0), closed(2), stdout(3, 0, "a")), "follows the closed event"},
		"end without closed":    {says(exited(1, 0)), "ended after seq 1"},
		"end without started":   {sends(nil), "ended before"},
		"events before started": {sends(nil, events(exited(1, 0))), "first message"},
		"started twice":         {sends(nil, started(0), started(0)), "twice"},
		"resumes stdin unasked": {sends(nil, started(4)), "accepted 4 bytes of stdin"},
		"accepts stdin unsent":  {sends(nil, started(0), accepted(4)), "accepted 4 bytes of stdin"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			fake, c := newFake(t, test.play)
			_, err := c.Run(t.Context(), RunOptions{Process: direct("x"), Stdin: strings.NewReader("")})
			var protocol *ProtocolError
			if !errors.As(err, &protocol) || !strings.Contains(protocol.Problem, test.problem) {
				t.Fatalf("got %v, want a ProtocolError about %q", err, test.problem)
			}
			if fake.callCount() != 1 {
				t.Errorf("tried %d times, want once", fake.callCount())
			}
			if len(fake.terminations()) != 1 {
				t.Errorf("terminated %d times, want once", len(fake.terminations()))
			}
		})
	}
}

func TestRun_Rejections_FailAtOnce(t *testing.T) {
	tests := map[string]struct {
		code    codes.Code
		reason  execwirev1.ErrorReason
		started bool
	}{
		"invalid field":      {codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD, false},
		"program not found":  {codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND, false},
		"id taken":           {codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS, false},
		"draining":           {codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_DRAINING, false},
		"no sandbox made":    {codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_SANDBOX_NOT_STARTED, false},
		"taken over":         {codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_PROCESS_TAKEN_OVER, true},
		"internal":           {codes.Internal, execwirev1.ErrorReason_ERROR_REASON_INTERNAL, true},
		"reason of tomorrow": {codes.Internal, execwirev1.ErrorReason_ERROR_REASON_UNSPECIFIED, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := serverError(test.code, test.reason)
			play := sends(err)
			if test.started {
				play = sends(err, started(0), events(stdout(1, 0, "a")))
			}
			fake, c := newFake(t, play)
			_, got := c.Run(t.Context(), RunOptions{Process: direct("x")})
			var typed *Error
			if !errors.As(got, &typed) || typed.Code != test.code || Reason(got) != test.reason {
				t.Errorf("got %v, want %v", got, test.reason)
			}
			if fake.callCount() != 1 {
				t.Errorf("tried %d times, want once", fake.callCount())
			}
		})
	}
}

func TestRun_GraceExpired_Fails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newFake(t, sends(errCut, started(0), events(stdout(1, 0, "a"), exited(2, 3))))
		begin := time.Now()
		_, err := c.Run(t.Context(), RunOptions{Process: direct("x"), Grace: new(20 * time.Second)})
		var lost *LostError
		if !errors.As(err, &lost) || !errors.Is(err, ErrLost) {
			t.Fatalf("got %v, want a LostError", err)
		}
		if !lost.Started || lost.LastSeq != 2 || lost.Exit.GetExitCode() != 3 || lost.ProcessID != "p" {
			t.Errorf("got %+v", lost)
		}
		if took := time.Since(begin); took < 20*time.Second+graceMargin || took > 25*time.Second+graceMargin {
			t.Errorf("gave up after %v of a grace of 20s", took)
		}
	})
}

func TestRun_WithoutGrace_DoesNotResume(t *testing.T) {
	fake, c := newFake(t, sends(errCut, started(0)))
	_, err := c.Run(t.Context(), RunOptions{Process: direct("x"), Grace: new(time.Duration)})
	if !errors.Is(err, ErrLost) || fake.callCount() != 1 {
		t.Errorf("got %v after %d streams, want ErrLost after 1", err, fake.callCount())
	}
}

func TestRun_ServerForgotProcess_Fails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		notFound := serverError(codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND)
		_, c := newFake(t, sends(errCut, started(0)), sends(notFound))
		_, err := c.Run(t.Context(), RunOptions{Process: direct("x")})
		if !errors.Is(err, ErrLost) || Reason(err) != execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND {
			t.Errorf("got %v, want ErrLost because of PROCESS_NOT_FOUND", err)
		}
	})
}

func TestRun_UnexpectedFailures_AreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, c := newFake(t, sends(nil, started(0)))
		fake.scripts[0] = sends(errCut, started(0))
		fake.beyond = sends(status.Error(codes.Internal, "a proxy broke it"), started(0))
		_, err := c.Run(t.Context(), RunOptions{Process: direct("x")})
		if status.Code(err) != codes.Internal || fake.callCount() != 2+maxUnexpected {
			t.Errorf("got %v after %d streams", err, fake.callCount())
		}
	})
}

func TestRun_ConnectionRefused_FailsAtOnce(t *testing.T) {
	fake, c := newFake(t)
	_ = fake.listener.Close()
	_, err := c.Run(t.Context(), RunOptions{Process: direct("x")})
	if status.Code(err) != codes.Unavailable || errors.Is(err, ErrLost) {
		t.Errorf("got %v, want UNAVAILABLE", err)
	}
}

func TestRun_ResumesAfterDraining(t *testing.T) {
	list := testEvents()
	draining := serverError(codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_DRAINING)
	runTestEvents(t, RunOptions{},
		sends(draining, started(0), events(list[:2]...)),
		resumes(t, 2, list))
}

func TestRun_OutputError_Terminates(t *testing.T) {
	hold := make(chan struct{})
	fake, c := newFake(t, func(stream serverStream) error {
		err := sends(nil, started(0), events(stdout(1, 0, "a")))(stream)
		<-hold
		return err
	})
	defer close(hold)
	_, err := c.Run(t.Context(), RunOptions{Process: direct("x"), Stdout: brokenWriter{}})
	var broken *OutputError
	if !errors.As(err, &broken) || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("got %v, want an OutputError with EPIPE", err)
	}
	if list := fake.terminations(); len(list) != 1 || list[0].GetProcessId() != "p" {
		t.Errorf("terminated %v", list)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestRun_Cancelled_Kills(t *testing.T) {
	cause := errors.New("the test is tired")
	for _, answered := range []bool{true, false} {
		ctx, cancel := context.WithCancelCause(t.Context())
		fake, c := newFake(t, func(stream serverStream) error {
			if _, err := stream.Recv(); err != nil {
				return err
			}
			if !answered {
				cancel(cause)
			}
			if err := stream.Send(started(0)); err != nil {
				return err
			}
			<-stream.Context().Done()
			return stream.Context().Err()
		})
		_, err := c.Run(ctx, RunOptions{
			Process:   direct("x"),
			OnStarted: func(*execwirev1.Process) { cancel(cause) },
		})
		if !errors.Is(err, cause) {
			t.Errorf("got %v, want the cause of the context", err)
		}
		list := fake.terminations()
		if len(list) != 1 || list[0].GetTermination().GetForce() == nil {
			t.Errorf("terminated %v, want once by force", list)
		}
	}
}

func TestRun_InvalidOptions_Fail(t *testing.T) {
	c := New(nil)
	if _, err := c.Run(t.Context(), RunOptions{}); err == nil {
		t.Error("ran nothing")
	}
	process := direct("x")
	process.Io = &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Pipes{
		Pipes: &execwirev1.PipeIo{Stdin: execwirev1.StdinMode_STDIN_MODE_CLOSED}}}
	if _, err := c.Run(t.Context(), RunOptions{Process: process, Stdin: io.LimitReader(nil, 0)}); err == nil {
		t.Error("sent input to a closed stdin")
	}
}
