package server_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/testproc"
	"github.com/execwire/execwire/server"
)

// A sent exit record can still be lost: it may take most of a minute until a dead connection is noticed.
func TestRun_UnacknowledgedOutput_IsRetained(t *testing.T) {
	inEachForm(t, func(t *testing.T, form func(*settings)) {
		f := newFixture(t, form, func(s *settings) { s.sessions.ClosedRetention = 10 * time.Millisecond })
		o := f.open(startMessage(shell("p", "echo result; exit 3"), durationpb.New(time.Hour)), 0)
		for {
			if err := o.recv(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if o.out.closed == nil {
			t.Fatal("the stream ended before the process was closed")
		}
		time.Sleep(50 * time.Millisecond) // longer than the retention
		again := f.resume("p", 0)
		again.mustEnd()
		if again.out.stdout() != "result\n" || again.out.exit.GetExitCode() != 3 {
			t.Errorf("the resume received %q and %v", again.out.stdout(), again.out.exit)
		}
		for f.ctx.Err() == nil { // the acknowledged record is removed after its retention
			_, err := f.processes.GetProcess(f.ctx, &execwirev1.GetProcessRequest{ProcessId: "p"})
			if status.Code(err) == codes.NotFound {
				return
			}
		}
		t.Error("an acknowledged record is kept")
	})
}

func TestRun_DetachWithoutReading_FreesProcess(t *testing.T) {
	inEachForm(t, func(t *testing.T, form func(*settings)) {
		f := newFixture(t, form)
		const size = 8 << 20
		o := f.run(command("p", testproc.Argv("flood", "-bytes", fmt.Sprint(size))...))
		// The client no longer reads, so the server is blocked sending, and the client detaches.
		o.send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Detach{Detach: &execwirev1.RunDetach{}}})
		if exit := f.waitClosed("p").GetExit(); exit.GetExitCode() != 0 {
			t.Errorf("exit is %v", exit)
		}
	})
}

func TestReplacedOwners_NotReading_ExhaustNothing(t *testing.T) {
	inEachForm(t, func(t *testing.T, form func(*settings)) {
		f := newFixture(t, form)
		f.start(command("p", testproc.Argv("flood", "-bytes", fmt.Sprint(8<<20))...))
		f.waitClosed("p")
		for range 100 {
			f.resume("p", 0) // and does not read further
		}
	})
}

func TestRun_Started_ReportsEventWindow(t *testing.T) {
	f := newFixture(t, func(s *settings) { s.limits.RetainedEvents = 1000 })
	if got := f.run(command("p", "cat")).started.GetOutputWindowEvents(); got != 1000 {
		t.Errorf("the window is %d events", got)
	}
}

func TestRun_StdinLargerThanOneWrite_IsAccepted(t *testing.T) {
	f := newFixture(t, func(s *settings) { s.limits.StdinWriteBytes = 4 << 10; s.limits.StdinQueueBytes = 64 << 10 })
	o := f.run(withStdin(command("p", "cat")))
	want := strings.Repeat("0123456789", 5000)
	o.write(0, want, true)
	o.mustEnd()
	if o.out.stdout() != want {
		t.Errorf("cat read %d bytes", len(o.out.stdout()))
	}
}

func TestRun_HalfCloseWithoutStdin_IsAccepted(t *testing.T) {
	for name, req := range map[string]*execwirev1.StartProcessRequest{
		"closed": shell("p", "echo x"), "terminal": withTerminal(shell("p", "echo x"), 24, 80),
	} {
		t.Run(name, func(t *testing.T) {
			o := newFixture(t).run(req)
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
			if len(o.refused) != 0 || o.out.closed == nil {
				t.Errorf("refused %v", o.refused)
			}
		})
	}
}

func TestRun_CallerMemory_IsNotModified(t *testing.T) {
	inEachForm(t, func(t *testing.T, form func(*settings)) {
		o := newFixture(t, form).run(withStdin(command("p", testproc.Argv("never-read")...)))
		memory := []byte("helloXXXXXXXXXX")
		for i := range 2 {
			o.send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Stdin{
				Stdin: &execwirev1.RunStdin{Offset: uint64(5 * i), Data: memory[:5]}}})
		}
		o.until("the input to be accepted", func() bool { return o.stdin == 10 })
		if string(memory) != "helloXXXXXXXXXX" {
			t.Errorf("the caller's memory is %q", memory)
		}
	})
}

func TestReadOutput_Cursor_NeverDecreases(t *testing.T) {
	f := newFixture(t)
	// The exit is between two gaps: the output before and after it is evicted.
	f.start(shell("p", fmt.Sprintf("head -c %d /dev/zero; (sleep 0.3; head -c %d /dev/zero) &", 3<<20, 3<<20)))
	f.waitClosed("p")
	for after := uint64(0); ; {
		resp, err := f.processes.ReadOutput(f.ctx, &execwirev1.ReadOutputRequest{ProcessId: "p", AfterSeq: after, MaxBytes: proto.Uint32(1)})
		if err != nil {
			t.Fatal(err)
		}
		next := resp.GetNextAfterSeq()
		if next == resp.GetLastSeq() {
			return
		}
		if next <= after {
			t.Fatalf("next_after_seq after %d is %d, with %v", after, next, resp.GetEvents())
		}
		after = next
	}
}

func TestErrors_LongInput_StaySmall(t *testing.T) {
	f := newFixture(t)
	long := strings.Repeat("é", 1<<20)
	_, get := f.processes.GetProcess(f.ctx, &execwirev1.GetProcessRequest{ProcessId: long})
	expectFailure(t, get, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
	_, page := f.processes.ListProcesses(f.ctx, &execwirev1.ListProcessesRequest{PageToken: long})
	expectFailure(t, page, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
	_, start := f.processes.StartProcess(f.ctx, command("p", long))
	_, env := f.processes.StartProcess(f.ctx, changed(func(_ *execwirev1.StartProcessRequest, d *execwirev1.DirectCommand) {
		d.Env[long] = "\x00"
	}))
	for name, err := range map[string]error{"id": get, "token": page, "program": start, "environment": env} {
		if size := proto.Size(status.Convert(err).Proto()); err == nil || size > 4<<10 {
			t.Errorf("%s: the error is %d bytes", name, size)
		}
	}
	if len(long) <= server.MaxProcessIDBytes {
		t.Fatal("the input is not longer than the limit")
	}
}

func TestListProcesses_LargeRecords_BoundsPageSize(t *testing.T) {
	f := newFixture(t)
	const processes = 40
	for i := range processes {
		f.start(command(fmt.Sprintf("%02d", i), "/bin/true", strings.Repeat("x", 120<<10)))
	}
	seen := 0
	for token := ""; ; {
		resp, err := f.processes.ListProcesses(f.ctx, &execwirev1.ListProcessesRequest{PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		if size := proto.Size(resp); size > 1<<20+200<<10 {
			t.Errorf("a page is %d bytes", size)
		}
		seen += len(resp.GetProcesses())
		if token = resp.GetNextPageToken(); token == "" {
			break
		}
	}
	if seen != processes {
		t.Errorf("listed %d processes", seen)
	}
}

func TestStart_EmptySessionID_MeansDefaultSession(t *testing.T) {
	f := newFixture(t)
	req := command("p", "sleep", "1000")
	first := f.start(req)
	req.SessionId = "default"
	if again := f.start(req); again.GetPid() != first.GetPid() {
		t.Error("the same start in the same session started another process")
	}
}

func TestRun_InvalidStart_NamesFieldWithinRunMessage(t *testing.T) {
	f := newFixture(t)
	stream, err := f.processes.RunProcess(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(startMessage(command("p"), nil)); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	if field := violatedField(err); field != "start.process.command.direct.argv" {
		t.Errorf("the violated field is %q (%v)", field, err)
	}
}
