package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

// heldBytes is more than a small server retains, and little enough to be forwarded by a few
// connections.
const heldBytes = 1 << 20

func heldFlood() []string {
	return harness.Program("flood", "-bytes", fmt.Sprint(heldBytes), "-stderr", fmt.Sprint(heldBytes/4))
}

// hold starts a process and returns the client's handle.
func holdProcess(s *harness.Scenario, options client.StartOptions, argv []string, change ...harness.Option) *client.Process {
	s.Helper()
	options.Process = s.Request(argv, change...).GetProcess()
	process, err := client.New(s.Conn).Start(s.Ctx, options)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = process.Close() })
	return process
}

// whole reads the events of a flood and returns an error if they are incomplete. midway,
// unless nil, is closed in the middle.
func whole(s *harness.Scenario, process *client.Process, midway chan struct{}) error {
	stdout, stderr := testproc.StdoutPattern.NewVerifier(), testproc.StderrPattern.NewVerifier()
	last, closed := uint64(0), false
	for event, err := range process.Events(s.Ctx) {
		if err != nil {
			return err
		}
		if event.After() != last+1 {
			return fmt.Errorf("seq %d follows %d", event.After(), last)
		}
		last = event.After()
		switch e := event.(type) {
		case *client.OutputEvent:
			to := stdout
			if e.Stream == execwirev1.OutputStream_OUTPUT_STREAM_STDERR {
				to = stderr
			}
			if _, err := to.Write(e.Data); err != nil {
				return err
			}
		case *client.ClosedEvent:
			closed = true
		}
		if midway != nil && stdout.Offset() > heldBytes/2 {
			close(midway)
			midway = nil
		}
	}
	if stdout.Offset() != heldBytes || stderr.Offset() != heldBytes/4 || !closed {
		return fmt.Errorf("received %d and %d bytes, closed is %v", stdout.Offset(), stderr.Offset(), closed)
	}
	return nil
}

// Two readers begin at the start, one in the middle, one after the end. Each receives all
// events, while the connection is cut repeatedly.
func TestHandle_Cuts_EveryReaderGetsEverything(t *testing.T) {
	harness.WithConfig(t, harness.SmallRetention, func(s *harness.Scenario) {
		cutEvery(s, heldBytes/4)
		process := holdProcess(s, client.StartOptions{KeepBytes: 64 << 20}, heldFlood())
		midway := make(chan struct{})
		var readers sync.WaitGroup
		errs := make(chan error, 3)
		readers.Go(func() { errs <- whole(s, process, midway) })
		readers.Go(func() { errs <- whole(s, process, nil) })
		readers.Go(func() {
			select {
			case <-midway:
				errs <- whole(s, process, nil)
			case <-s.Ctx.Done():
				errs <- s.Ctx.Err()
			}
		})
		exit, err := process.Wait(s.Ctx)
		if err != nil || exit.ShellCode() != 0 || exit.DroppedBytes != 0 {
			t.Errorf("got %+v, %v", exit, err)
		}
		readers.Wait()
		for range 3 {
			if err := <-errs; err != nil {
				s.Error(err)
			}
		}
		if err := whole(s, process, nil); err != nil {
			s.Errorf("after the end: %v", err)
		}
		expectCuts(s)
	})
}

// cutEvery cuts the first connection after n bytes, and each other one n bytes later than the one
// before. With the same number for all, every connection could be cut in the input that fills the
// window again, before any output: with one processor the client writes all of it first.
func cutEvery(s *harness.Scenario, n int64) {
	if s.Proxy != nil {
		var budget atomic.Int64
		s.Proxy.CutAfter(func() int64 { return budget.Add(n) })
		s.Proxy.Cut()
	}
}

func expectCuts(s *harness.Scenario) {
	s.Helper()
	if s.Proxy != nil && s.Proxy.CutCount() < 2 {
		s.Errorf("the connection was cut %d times", s.Proxy.CutCount())
	}
}

func TestCommunicate_Cuts_LosesNothing(t *testing.T) {
	harness.WithConfig(t, harness.SmallRetention, func(s *harness.Scenario) {
		cutEvery(s, heldBytes/4)
		process := holdProcess(s, client.StartOptions{}, harness.Program("echo"), harness.WithStdin)
		input, err := io.ReadAll(testproc.StdoutPattern.Reader(heldBytes))
		if err != nil {
			t.Fatal(err)
		}
		stdout, stderr, exit, err := process.Communicate(s.Ctx, input)
		if err != nil || exit.ShellCode() != 0 || string(stderr) != "end of input\n" || !bytes.Equal(stdout, input) {
			t.Errorf("received %d of %d bytes back, %q, %+v, %v", len(stdout), len(input), stderr, exit, err)
		}
		expectCuts(s)
	})
}

// Without a reader the process is blocked after one window, and continues when it is read.
func TestHandle_Unread_BlocksTheProcess(t *testing.T) {
	harness.WithConfig(t, harness.SmallRetention, func(s *harness.Scenario) {
		process := holdProcess(s, client.StartOptions{}, heldFlood())
		s.ExpectRunning(process.ID())
		if err := whole(s, process, nil); err != nil {
			t.Error(err)
		}
	})
}

// A second program continues where the first one stopped.
func TestHandle_Ref_OpensTheProcessElsewhere(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		process := holdProcess(s, client.StartOptions{}, harness.Program("echo"), harness.WithStdin)
		if _, err := io.WriteString(process, "one"); err != nil {
			t.Fatal(err)
		}
		text := ""
		for event, err := range process.Events(s.Ctx) {
			if err != nil {
				t.Fatal(err)
			}
			if output, ok := event.(*client.OutputEvent); ok {
				text += string(output.Data)
			}
			if len(text) == 3 {
				break
			}
		}
		ref := process.Ref()
		if err := process.Detach(s.Ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := process.Wait(s.Ctx); !errors.Is(err, client.ErrDetached) {
			t.Errorf("waited and got %v", err)
		}
		again, err := client.New(s.Conn).Attach(s.Ctx, ref, client.StartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		stdout, _, exit, err := again.Communicate(s.Ctx, []byte("two"))
		if text != "one" || string(stdout) != "two" || err != nil || exit.ShellCode() != 0 {
			t.Errorf("got %q and %q, %+v, %v", text, stdout, exit, err)
		}
	})
}

func TestHandle_Close_EndsTheProcess(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		process := holdProcess(s, client.StartOptions{}, harness.Program("sleep"))
		if err := process.Close(); err != nil {
			t.Error(err)
		}
		s.ExpectEnd(awaitExit(s, process.ID()), 0, harness.Sigkill, harness.Terminated)
	})
}

func TestHandle_Terminate_ReturnsTheExit(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		process := holdProcess(s, client.StartOptions{}, harness.Program("sleep"))
		answer, err := process.Terminate(s.Ctx, client.Termination{})
		if err != nil || !answer.GetWasRunning() {
			t.Errorf("got %v, %v", answer, err)
		}
		exit, err := process.Wait(s.Ctx)
		if err != nil || exit.Signal != 15 || exit.Cause != execwirev1.ExitCause_EXIT_CAUSE_TERMINATED {
			t.Errorf("got %+v, %v", exit, err)
		}
	})
}

// Output and the end before the release of a process reach it.
func TestHandle_Detach_DeliversAllInput(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		process := holdProcess(s, client.StartOptions{}, harness.Program("echo"), harness.WithStdin)
		if _, err := io.WriteString(process, "one"); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(process.CloseStdin(), process.Detach(s.Ctx)); err != nil {
			t.Fatal(err)
		}
		var stdout bytes.Buffer
		exit, err := client.New(s.Conn).Follow(s.Ctx, client.ProcessRef{ProcessID: process.ID()}, client.FollowOptions{Stdout: &stdout})
		if err != nil || exit.ShellCode() != 0 || stdout.String() != "one" {
			t.Errorf("got %q, %+v, %v", stdout.String(), exit, err)
		}
	})
}
