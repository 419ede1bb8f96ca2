package integration

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
	"github.com/execwire/execwire/internal/config"
)

// taking is a process that somebody took up with the client.
type taking struct {
	stdout, stderr lockedBuffer
	input          *io.PipeWriter
	detach         chan struct{}
	owned          chan struct{} // closed once it is owned
	give           context.CancelCauseFunc
	over           chan struct{} // closed once Resume has returned

	exit client.Exit
	err  error
}

// take takes a process up.
func (s *story) take(id string, change func(*client.RunOptions, *client.ProcessRef)) *taking {
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancelCause(s.ctx)
	k := &taking{input: writer, detach: make(chan struct{}), owned: make(chan struct{}), give: cancel, over: make(chan struct{})}
	options := client.RunOptions{Stdin: reader, Stdout: &k.stdout, Stderr: &k.stderr, Detach: k.detach,
		OnStarted: func(*execwirev1.Process) { close(k.owned) }}
	process := client.ProcessRef{ProcessID: id}
	if change != nil {
		change(&options, &process)
	}
	go func() {
		defer close(k.over)
		k.exit, k.err = client.New(s.conn).Resume(ctx, process, options)
	}()
	s.Cleanup(func() {
		cancel(errStop)
		_ = reader.Close()
		<-k.over
	})
	return k
}

func (s *story) await(what string, c <-chan struct{}) {
	s.Helper()
	select {
	case <-c:
	case <-s.ctx.Done():
		s.Fatalf("hung waiting for %s", what)
	}
}

// awaitReachable waits until calls work again after a cut.
func (s *story) awaitReachable(id string) {
	s.Helper()
	eventually(s, "the connection", func() bool {
		_, err := s.processes.GetProcess(s.ctx, &execwirev1.GetProcessRequest{ProcessId: id})
		return err == nil
	})
}

// enter types something into a process that was taken up.
func (k *taking) enter(s *story, text string) {
	s.Helper()
	if _, err := k.input.Write([]byte(text)); err != nil {
		s.Fatal(err)
	}
}

// expectLeft checks that a process was left running, without an owner, with
// exactly this output, which is that of the program echo.
func (s *story) expectLeft(id, output string) {
	s.Helper()
	s.awaitOwned(id, false)
	if state := s.get(id).GetState(); state != execwirev1.ProcessState_PROCESS_STATE_RUNNING {
		s.Fatalf("it is %v", state)
	}
	s.closeStdin(id)
	observer := s.watch(id, 0)
	observer.expectOutput(stdoutOf, output)
	observer.expectEnd(s, 0, noSignal, byItself)
}

func TestAProcessIsTakenUpAndFollowedToItsEnd(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		id := s.start(program("echo"), stdin)
		s.write(id, "before ")
		k := s.take(id, nil)
		s.await("the ownership", k.owned)
		k.enter(s, "after")
		eventually(s, "the answer", func() bool { return k.stdout.String() == "before after" })
		if !s.get(id).GetOwned() {
			s.Error("nobody owns it")
		}
		if s.wire != nil {
			s.wire.cut()
		}
		k.enter(s, " all")
		_ = k.input.Close()
		s.await("the end", k.over)
		if k.err != nil || k.exit.ProcessID != id || k.exit.Code != 0 || k.stderr.String() != "end of input\n" ||
			k.stdout.String() != "before after all" || k.exit.StdoutBytes != 16 {
			s.Errorf("it ended with %+v, %v", k.exit, k.err)
		}
	})
}

// From a cursor on there is only what comes after it, the end included.
func TestAProcessIsTakenUpFromACursor(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		id := s.start(shell("echo one; read x; echo two; exit 3"), stdin)
		eventually(s, "output", func() bool { return s.get(id).GetLastSeq() == 1 })
		k := s.take(id, func(_ *client.RunOptions, p *client.ProcessRef) { p.AfterSeq = 1 })
		s.await("the ownership", k.owned)
		k.enter(s, "\n")
		s.await("the end", k.over)
		if k.err != nil || k.exit.Code != 3 || k.stdout.String() != "two\n" || k.exit.DroppedBytes != 0 || k.exit.StdoutBytes != 8 {
			s.Errorf("it ended with %+v, %v and said %q", k.exit, k.err, k.stdout.String())
		}
		last := s.get(id).GetLastSeq()
		for _, after := range []uint64{last, last - 1} {
			k = s.take(id, func(_ *client.RunOptions, p *client.ProcessRef) { p.AfterSeq = after })
			s.await("the end", k.over)
			if k.err != nil || k.exit.Code != 3 || k.stdout.String() != "" {
				s.Errorf("after the end it is %+v, %v, %q", k.exit, k.err, k.stdout.String())
			}
		}
	})
}

func TestDetachingFromAProcessLeavesIt(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		id := s.start(program("echo"), stdin)
		k := s.take(id, nil)
		s.await("the ownership", k.owned)
		k.enter(s, "typed")
		eventually(s, "the answer", func() bool { return k.stdout.String() == "typed" })
		close(k.detach)
		s.await("the end", k.over)
		if !errors.Is(k.err, client.ErrDetached) {
			s.Errorf("it ended with %+v, %v", k.exit, k.err)
		}
		// And again, this time by keys, with input on both sides of them.
		k = s.take(id, func(o *client.RunOptions, _ *client.ProcessRef) {
			o.Stdin, o.DetachKeys = strings.NewReader(" more\x10\x11not this"), []byte{0x10, 0x11}
		})
		s.await("the end", k.over)
		if !errors.Is(k.err, client.ErrDetached) {
			s.Errorf("it ended with %+v, %v", k.exit, k.err)
		}
		s.expectLeft(id, "typed more")
	})
}

// A detach that was cut off is done by the stream that comes after.
func TestDetachingSurvivesACut(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		if s.wire == nil {
			return
		}
		id := s.start(program("echo"), stdin)
		k := s.take(id, func(o *client.RunOptions, _ *client.ProcessRef) { o.Stdin = nil })
		s.await("the ownership", k.owned)
		s.wire.setStalled(true)
		close(k.detach)
		s.wire.cut()
		s.wire.setStalled(false)
		s.await("the end", k.over)
		if !errors.Is(k.err, client.ErrDetached) {
			s.Errorf("it ended with %+v, %v", k.exit, k.err)
		}
		s.expectLeft(id, "")
	})
}

// Who took a process up and fails leaves it as it was.
func TestAProcessOutlivesWhoTookItUp(t *testing.T) {
	gone := errors.New("enough")
	atEveryDoor(t, func(s *story) {
		id := s.start(program("echo"), stdin)
		k := s.take(id, nil)
		s.await("the ownership", k.owned)
		k.give(gone)
		s.await("the end", k.over)
		if !errors.Is(k.err, gone) {
			s.Errorf("it ended with %+v, %v", k.exit, k.err)
		}
		k = s.take(id, func(o *client.RunOptions, _ *client.ProcessRef) { o.Stdout = brokenWriter{gone} })
		s.await("the ownership", k.owned)
		k.enter(s, "x")
		s.await("the end", k.over)
		if output := new(client.OutputError); !errors.As(k.err, &output) {
			s.Errorf("it ended with %+v, %v", k.exit, k.err)
		}
		s.expectLeft(id, "x")
		k = s.take("nobody", nil)
		s.await("the end", k.over)
		s.expectReason(k.err, "PROCESS_NOT_FOUND")
	})
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

// Following shows all of it, across cuts, and owns nothing.
func TestFollowingSurvivesCuts(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		id := s.start(program("echo"), stdin)
		var stdout, stderr lockedBuffer
		var exit client.Exit
		var seqs []uint64
		followed := make(chan error, 1)
		lost := make(chan struct{}, 10)
		go func() {
			var err error
			exit, err = client.New(s.conn).Follow(s.ctx, client.ProcessRef{ProcessID: id}, client.FollowOptions{
				Stdout: &stdout, Stderr: &stderr,
				OnLost:  func(error) { lost <- struct{}{} },
				OnEvent: func(e *execwirev1.ProcessEvent) error { seqs = append(seqs, e.GetSeq()); return nil },
			})
			followed <- err
		}()
		want := ""
		for _, text := range []string{"one ", "two ", "three "} {
			s.write(id, text)
			want += text
			eventually(s, text, func() bool { return stdout.String() == want })
			if s.get(id).GetOwned() {
				s.Error("following owns it")
			}
			if s.wire != nil {
				s.wire.cut()
				s.await("the loss", lost)
				s.awaitReachable(id)
			}
		}
		s.closeStdin(id)
		if err := <-followed; err != nil || exit.Code != 0 || stderr.String() != "end of input\n" || exit.StdoutBytes != uint64(len(want)) {
			s.Errorf("following ended with %+v, %v and %q", exit, err, stdout.String())
		}
		if s.wire != nil && exit.Resumed != 3 {
			s.Errorf("resumed %d times", exit.Resumed)
		}
		for i, seq := range seqs {
			if seq != uint64(i+1) {
				s.Errorf("event %d has seq %d", i, seq)
			}
		}
		again, err := client.New(s.conn).Follow(s.ctx, client.ProcessRef{ProcessID: id, AfterSeq: s.get(id).GetLastSeq()}, client.FollowOptions{})
		if err != nil || again.Code != 0 {
			s.Errorf("following what is over ended with %+v, %v", again, err)
		}
		_, err = client.New(s.conn).Follow(s.ctx, client.ProcessRef{ProcessID: "nobody"}, client.FollowOptions{})
		s.expectReason(err, "PROCESS_NOT_FOUND")
	})
}

// Waiting goes on beyond the server's longest wait, and across cuts.
func TestWaitingForLong(t *testing.T) {
	slow(t)
	waits(t)
	const most = time.Second
	withConfig(t, func(cfg *config.Config) { cfg.MaxWait = config.Duration(most) }, func(s *story) {
		id := s.start(program("echo"), stdin)
		type answer struct {
			response *execwirev1.WaitProcessResponse
			err      error
		}
		answers := make(chan answer, 1)
		wait := func(request *execwirev1.WaitProcessRequest) {
			request.ProcessId = id
			response, err := client.New(s.conn).Wait(s.ctx, request)
			answers <- answer{response, err}
		}
		pattern := &execwirev1.WaitProcessRequest{Condition: &execwirev1.WaitProcessRequest_Pattern{
			Pattern: &execwirev1.WaitForPattern{RegularExpression: `rea[d]y`}}}
		go wait(pattern)
		time.Sleep(most + most/5)
		if s.wire != nil {
			s.wire.cut()
			s.awaitReachable(id)
		}
		s.write(id, "ready")
		if a := <-answers; a.err != nil || !a.response.GetSatisfied() || string(a.response.GetMatch().GetData()) != "ready" {
			s.Errorf("got %v, %v", a.response, a.err)
		}
		pattern.GetPattern().RegularExpression = "never"
		go wait(&execwirev1.WaitProcessRequest{Condition: pattern.Condition, Wait: durationpb.New(most + most/5)})
		if a := <-answers; a.err != nil || a.response.GetSatisfied() {
			s.Errorf("a limited wait: %v, %v", a.response, a.err)
		}
		go wait(pattern)
		s.closeStdin(id)
		if a := <-answers; a.err != nil || a.response.GetSatisfied() || a.response.GetProcess().GetExit() == nil {
			s.Errorf("of a process that closed: %v, %v", a.response, a.err)
		}
		go wait(&execwirev1.WaitProcessRequest{Condition: &execwirev1.WaitProcessRequest_Idle{
			Idle: &execwirev1.WaitForIdle{Silence: durationpb.New(2*most + most/2)}}})
		if a := <-answers; a.err != nil || !a.response.GetSatisfied() {
			s.Errorf("silence of a process that closed: %v, %v", a.response, a.err)
		}
		_, err := client.New(s.conn).Wait(s.ctx, &execwirev1.WaitProcessRequest{ProcessId: "nobody"})
		s.expectReason(err, "PROCESS_NOT_FOUND")
	})
}
