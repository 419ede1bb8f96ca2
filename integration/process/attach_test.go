package process

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/config"
)

// resumedProcess is a process resumed by a client.
type resumedProcess struct {
	stdout, stderr harness.LockedBuffer
	input          *io.PipeWriter
	detach         chan struct{}
	owned          chan struct{} // closed once it is owned
	cancel         context.CancelCauseFunc
	returned       chan struct{} // closed once Resume has returned

	exit client.Exit
	err  error
}

// resumeProcess resumes a process.
func resumeProcess(s *harness.Scenario, id string, change func(*client.RunOptions, *client.ProcessRef)) *resumedProcess {
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancelCause(s.Ctx)
	k := &resumedProcess{input: writer, detach: make(chan struct{}), owned: make(chan struct{}), cancel: cancel, returned: make(chan struct{})}
	options := client.RunOptions{Stdin: reader, Stdout: &k.stdout, Stderr: &k.stderr, Detach: k.detach,
		OnStarted: func(*execwirev1.Process) { close(k.owned) }}
	process := client.ProcessRef{ProcessID: id}
	if change != nil {
		change(&options, &process)
	}
	go func() {
		defer close(k.returned)
		k.exit, k.err = client.New(s.Conn).Resume(ctx, process, options)
	}()
	s.Cleanup(func() {
		cancel(harness.ErrStop)
		_ = reader.Close()
		<-k.returned
	})
	return k
}

func await(s *harness.Scenario, what string, c <-chan struct{}) {
	s.Helper()
	select {
	case <-c:
	case <-s.Ctx.Done():
		s.Fatalf("hung waiting for %s", what)
	}
}

// awaitReachable waits until calls work again after a cut.
func awaitReachable(s *harness.Scenario, id string) {
	s.Helper()
	harness.Eventually(s, "the connection", func() bool {
		_, err := s.Processes.GetProcess(s.Ctx, &execwirev1.GetProcessRequest{ProcessId: id})
		return err == nil
	})
}

// enter writes to a resumed process.
func (k *resumedProcess) enter(s *harness.Scenario, text string) {
	s.Helper()
	if _, err := k.input.Write([]byte(text)); err != nil {
		s.Fatal(err)
	}
}

// expectLeft checks that a process still runs without an owner, and that its output, that of
// the program echo, is exactly this.
func expectLeft(s *harness.Scenario, id, output string) {
	s.Helper()
	s.AwaitOwned(id, false)
	if state := s.Get(id).GetState(); state != execwirev1.ProcessState_PROCESS_STATE_RUNNING {
		s.Fatalf("it is %v", state)
	}
	s.CloseStdin(id)
	observer := s.Watch(id, 0)
	observer.ExpectOutput(harness.StdoutOf, output)
	observer.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
}

func TestResume_FollowsToTheEnd(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		id := s.Start(harness.Program("echo"), harness.WithStdin)
		s.Write(id, "before ")
		k := resumeProcess(s, id, nil)
		await(s, "the ownership", k.owned)
		k.enter(s, "after")
		harness.Eventually(s, "the answer", func() bool { return k.stdout.String() == "before after" })
		if !s.Get(id).GetOwned() {
			s.Error("the process has no owner")
		}
		if s.Proxy != nil {
			s.Proxy.Cut()
		}
		k.enter(s, " all")
		_ = k.input.Close()
		await(s, "the end", k.returned)
		if k.err != nil || k.exit.ProcessID != id || k.exit.Code != 0 || k.stderr.String() != "end of input\n" ||
			k.stdout.String() != "before after all" || k.exit.StdoutBytes != 16 {
			s.Errorf("it ended with %+v, %v", k.exit, k.err)
		}
	})
}

// After a cursor only later events are delivered, including the end.
func TestResume_FromACursor(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		id := s.Start(harness.Shell("echo one; read x; echo two; exit 3"), harness.WithStdin)
		harness.Eventually(s, "output", func() bool { return s.Get(id).GetLastSeq() == 1 })
		k := resumeProcess(s, id, func(_ *client.RunOptions, p *client.ProcessRef) { p.AfterSeq = 1 })
		await(s, "the ownership", k.owned)
		k.enter(s, "\n")
		await(s, "the end", k.returned)
		if k.err != nil || k.exit.Code != 3 || k.stdout.String() != "two\n" || k.exit.DroppedBytes != 0 || k.exit.StdoutBytes != 8 {
			s.Errorf("it ended with %+v, %v and wrote %q", k.exit, k.err, k.stdout.String())
		}
		last := s.Get(id).GetLastSeq()
		for _, after := range []uint64{last, last - 1} {
			k = resumeProcess(s, id, func(_ *client.RunOptions, p *client.ProcessRef) { p.AfterSeq = after })
			await(s, "the end", k.returned)
			if k.err != nil || k.exit.Code != 3 || k.stdout.String() != "" {
				s.Errorf("after the end it is %+v, %v, %q", k.exit, k.err, k.stdout.String())
			}
		}
	})
}

func TestDetach_LeavesTheProcess(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		id := s.Start(harness.Program("echo"), harness.WithStdin)
		k := resumeProcess(s, id, nil)
		await(s, "the ownership", k.owned)
		k.enter(s, "typed")
		harness.Eventually(s, "the answer", func() bool { return k.stdout.String() == "typed" })
		close(k.detach)
		await(s, "the end", k.returned)
		if !errors.Is(k.err, client.ErrDetached) {
			s.Errorf("it ended with %+v, %v", k.exit, k.err)
		}
		// And again, this time by keys, with input on both sides of them.
		k = resumeProcess(s, id, func(o *client.RunOptions, _ *client.ProcessRef) {
			o.Stdin, o.DetachKeys = strings.NewReader(" more\x10\x11not this"), []byte{0x10, 0x11}
		})
		await(s, "the end", k.returned)
		if !errors.Is(k.err, client.ErrDetached) {
			s.Errorf("it ended with %+v, %v", k.exit, k.err)
		}
		expectLeft(s, id, "typed more")
	})
}

// A detach that was cut is completed by the next stream.
func TestDetach_Cut_Succeeds(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		if s.Proxy == nil {
			return
		}
		id := s.Start(harness.Program("echo"), harness.WithStdin)
		k := resumeProcess(s, id, func(o *client.RunOptions, _ *client.ProcessRef) { o.Stdin = nil })
		await(s, "the ownership", k.owned)
		s.Proxy.SetStalled(true)
		close(k.detach)
		s.Proxy.Cut()
		s.Proxy.SetStalled(false)
		await(s, "the end", k.returned)
		if !errors.Is(k.err, client.ErrDetached) {
			s.Errorf("it ended with %+v, %v", k.exit, k.err)
		}
		expectLeft(s, id, "")
	})
}

// A resume that fails leaves the process unchanged.
func TestResume_CanceledClient_LeavesTheProcess(t *testing.T) {
	gone := errors.New("enough")
	harness.OverTransports(t, func(s *harness.Scenario) {
		id := s.Start(harness.Program("echo"), harness.WithStdin)
		k := resumeProcess(s, id, nil)
		await(s, "the ownership", k.owned)
		k.cancel(gone)
		await(s, "the end", k.returned)
		if !errors.Is(k.err, gone) {
			s.Errorf("it ended with %+v, %v", k.exit, k.err)
		}
		k = resumeProcess(s, id, func(o *client.RunOptions, _ *client.ProcessRef) { o.Stdout = brokenWriter{gone} })
		await(s, "the ownership", k.owned)
		k.enter(s, "x")
		await(s, "the end", k.returned)
		if output := new(client.OutputError); !errors.As(k.err, &output) {
			s.Errorf("it ended with %+v, %v", k.exit, k.err)
		}
		expectLeft(s, id, "x")
		k = resumeProcess(s, "nobody", nil)
		await(s, "the end", k.returned)
		s.ExpectReason(k.err, "PROCESS_NOT_FOUND")
	})
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

// Following delivers everything across cuts, and does not own the process.
func TestFollow_Cuts_LosesNothing(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		id := s.Start(harness.Program("echo"), harness.WithStdin)
		var stdout, stderr harness.LockedBuffer
		var exit client.Exit
		var seqs []uint64
		followed := make(chan error, 1)
		lost := make(chan struct{}, 10)
		go func() {
			var err error
			exit, err = client.New(s.Conn).Follow(s.Ctx, client.ProcessRef{ProcessID: id}, client.FollowOptions{
				Stdout: &stdout, Stderr: &stderr,
				OnLost:  func(error) { lost <- struct{}{} },
				OnEvent: func(e *execwirev1.ProcessEvent) error { seqs = append(seqs, e.GetSeq()); return nil },
			})
			followed <- err
		}()
		want := ""
		for _, text := range []string{"one ", "two ", "three "} {
			s.Write(id, text)
			want += text
			harness.Eventually(s, text, func() bool { return stdout.String() == want })
			if s.Get(id).GetOwned() {
				s.Error("following owns it")
			}
			if s.Proxy != nil {
				s.Proxy.Cut()
				await(s, "the loss", lost)
				awaitReachable(s, id)
			}
		}
		s.CloseStdin(id)
		if err := <-followed; err != nil || exit.Code != 0 || stderr.String() != "end of input\n" || exit.StdoutBytes != uint64(len(want)) {
			s.Errorf("following ended with %+v, %v and %q", exit, err, stdout.String())
		}
		if s.Proxy != nil && exit.Resumed != 3 {
			s.Errorf("resumed %d times", exit.Resumed)
		}
		for i, seq := range seqs {
			if seq != uint64(i+1) {
				s.Errorf("event %d has seq %d", i, seq)
			}
		}
		again, err := client.New(s.Conn).Follow(s.Ctx, client.ProcessRef{ProcessID: id, AfterSeq: s.Get(id).GetLastSeq()}, client.FollowOptions{})
		if err != nil || again.Code != 0 {
			s.Errorf("following what is over ended with %+v, %v", again, err)
		}
		_, err = client.New(s.Conn).Follow(s.Ctx, client.ProcessRef{ProcessID: "nobody"}, client.FollowOptions{})
		s.ExpectReason(err, "PROCESS_NOT_FOUND")
	})
}

// Waiting continues beyond the server's longest wait, and across cuts.
func TestWait_LongerThanOneCall(t *testing.T) {
	harness.Slow(t)
	harness.Waits(t)
	const most = time.Second
	harness.WithConfig(t, func(cfg *config.Config) { cfg.MaxWait = config.Duration(most) }, func(s *harness.Scenario) {
		id := s.Start(harness.Program("echo"), harness.WithStdin)
		type answer struct {
			response *execwirev1.WaitProcessResponse
			err      error
		}
		answers := make(chan answer, 1)
		wait := func(request *execwirev1.WaitProcessRequest) {
			request.ProcessId = id
			response, err := client.New(s.Conn).Wait(s.Ctx, request)
			answers <- answer{response, err}
		}
		pattern := &execwirev1.WaitProcessRequest{Condition: &execwirev1.WaitProcessRequest_Pattern{
			Pattern: &execwirev1.WaitForPattern{RegularExpression: `rea[d]y`}}}
		go wait(pattern)
		time.Sleep(most + most/5)
		if s.Proxy != nil {
			s.Proxy.Cut()
			awaitReachable(s, id)
		}
		s.Write(id, "ready")
		if a := <-answers; a.err != nil || !a.response.GetSatisfied() || string(a.response.GetMatch().GetData()) != "ready" {
			s.Errorf("got %v, %v", a.response, a.err)
		}
		pattern.GetPattern().RegularExpression = "never"
		go wait(&execwirev1.WaitProcessRequest{Condition: pattern.Condition, Wait: durationpb.New(most + most/5)})
		if a := <-answers; a.err != nil || a.response.GetSatisfied() {
			s.Errorf("a limited wait: %v, %v", a.response, a.err)
		}
		go wait(pattern)
		s.CloseStdin(id)
		if a := <-answers; a.err != nil || a.response.GetSatisfied() || a.response.GetProcess().GetExit() == nil {
			s.Errorf("of a process that closed: %v, %v", a.response, a.err)
		}
		go wait(&execwirev1.WaitProcessRequest{Condition: &execwirev1.WaitProcessRequest_Idle{
			Idle: &execwirev1.WaitForIdle{Silence: durationpb.New(2*most + most/2)}}})
		if a := <-answers; a.err != nil || !a.response.GetSatisfied() {
			s.Errorf("silence of a process that closed: %v, %v", a.response, a.err)
		}
		_, err := client.New(s.Conn).Wait(s.Ctx, &execwirev1.WaitProcessRequest{ProcessId: "nobody"})
		s.ExpectReason(err, "PROCESS_NOT_FOUND")
	})
}
