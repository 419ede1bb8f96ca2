package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/internal/testowner"
	"github.com/execwire/execwire/internal/testproc"
)

// owners are the owners of one process that echoes its input, one after the other.
type owners struct {
	*owner
	t      *testing.T
	random *rand.Rand
	id     string
	input  []byte
	sent   int            // input sent by this owner, or accepted
	acked  uint64         // acknowledged by any owner
	got    []byte         // up to seq
	ends   map[uint64]int // bytes of got up to a seq
	old    []*owner       // replaced
}

// take adds what the owner received since the last call.
func (o *owners) take(before uint64) {
	o.t.Helper()
	o.got = append(o.got, o.out.stdout()...)
	delete(o.out.bytes, execwirev1.OutputStream_OUTPUT_STREAM_STDOUT)
	if len(o.out.gaps) != 0 || !bytes.HasPrefix(o.input, o.got) {
		o.t.Fatalf("after %d bytes the output differs; gaps are %v", len(o.got), o.out.gaps)
	}
	// Events received together are told apart no further.
	if o.out.seq != before {
		o.ends[o.out.seq] = len(o.got)
	}
}

// receive receives one message, of which there must be one.
func (o *owners) receive() {
	o.t.Helper()
	before := o.out.seq
	if err := o.recv(); err != nil {
		o.t.Fatal(err)
	}
	o.take(before)
}

// step does something at random.
func (o *owners) step() {
	o.t.Helper()
	switch o.random.IntN(10) {
	case 0, 1, 2: // new input, or some of it again
		o.sent = max(o.sent, int(o.stdin)) // input of an earlier owner was accepted
		from := int(o.stdin) + o.random.IntN(o.sent-int(o.stdin)+1)
		to := min(from+o.random.IntN(40_000), len(o.input), int(o.stdin)+64<<10)
		o.write(uint64(from), string(o.input[from:to]), false)
		o.sent = max(o.sent, to)
	case 3, 4, 5, 6:
		// What was accepted is echoed, up to a window that is not acknowledged.
		if len(o.got) < int(o.stdin) && len(o.got)-o.ends[o.acked] < 16<<10 {
			o.receive()
		}
	case 7:
		o.acked = o.out.seq
		o.acknowledge(o.acked)
	case 8:
		o.cut(errors.New("cut"))
		o.resume()
	case 9:
		o.old = append(o.old, o.owner)
		o.resume()
	}
}

// resume owns the process again, after the last event or an earlier one.
func (o *owners) resume() {
	o.t.Helper()
	after := o.out.seq
	if o.random.IntN(2) == 0 {
		after = o.acked
	}
	o.got = o.got[:o.ends[after]]
	o.acked = max(o.acked, after)
	o.owner = o.f.resume(o.id, after)
	o.out.bytes[execwirev1.OutputStream_OUTPUT_STREAM_STDOUT] = nil
	o.stdin = o.started.GetStdinOffset()
	o.sent = int(o.stdin)
	o.take(after)
}

// Whatever an owner does, and however often it is cut or another one takes over, every byte
// of input is applied once, and every byte of output arrives once and in order.
func TestOwner_RandomCutsAndTakeovers_DeliverExactlyOnce(t *testing.T) {
	rounds, steps := 60, 150
	if testing.Short() {
		rounds = 8
	}
	inEachForm(t, func(t *testing.T, form func(*settings)) {
		f := newFixture(t, form, func(s *settings) {
			s.limits.RetainedOutputBytes, s.limits.StdinQueueBytes, s.limits.StdinWriteBytes = 64<<10, 64<<10, 32<<10
		})
		for i := range rounds {
			seed := rand.Uint64()
			o := &owners{t: t, random: rand.New(rand.NewPCG(seed, 0)), id: fmt.Sprint(i), input: make([]byte, 400_000), ends: map[uint64]int{0: 0}}
			for i := range o.input {
				o.input[i] = byte(o.random.Uint32())
			}
			o.owner = f.run(withStdin(command(o.id, "cat")))
			for range steps {
				o.step()
			}
			o.resume()
			for len(o.got) < len(o.input) || o.out.closed == nil {
				if o.sent = int(o.stdin); o.out.closed == nil {
					to := min(o.sent+16<<10, len(o.input))
					o.write(o.stdin, string(o.input[o.sent:to]), to == len(o.input))
				}
				o.receive()
				o.acknowledge(o.out.seq)
			}
			o.mustEnd()
			for _, old := range o.old {
				expectFailure(t, old.end(), codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_PROCESS_TAKEN_OVER)
			}
			if t.Failed() {
				t.Fatalf("the seed was %d", seed)
			}
		}
	})
}

// call returns the calls that the owner of a process makes.
func (o *owner) call(ctx context.Context) (acknowledge, write, detach func() error) {
	id, owner := o.started.GetProcess().GetProcessId(), o.started.GetOwnerId()
	return func() error {
			_, err := o.f.processes.AcknowledgeOutput(ctx, &execwirev1.AcknowledgeOutputRequest{ProcessId: id, OwnerId: owner})
			return err
		}, func() error {
			_, err := o.f.processes.WriteStdin(ctx, &execwirev1.WriteStdinRequest{ProcessId: id, OwnerId: owner, Data: []byte("x")})
			return err
		}, func() error {
			_, err := o.f.processes.DetachProcess(ctx, &execwirev1.DetachProcessRequest{ProcessId: id, OwnerId: owner})
			return err
		}
}

func TestOwnerCalls_AfterTakeover_AreRefused(t *testing.T) {
	inEachForm(t, func(t *testing.T, form func(*settings)) {
		f := newFixture(t, form)
		first := f.run(withStdin(command("p", "cat")))
		second := f.resume("p", 0)
		acknowledge, write, detach := first.call(f.ctx)
		for _, call := range []func() error{acknowledge, write, detach} {
			expectFailure(t, call(), codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_PROCESS_TAKEN_OVER)
		}
		second.write(0, "", true)
		second.mustEnd()
		if second.out.stdout() != "" {
			t.Errorf("cat read %q", second.out.stdout())
		}
	})
}

func TestOwnerCalls_AfterLoss_AskForResume(t *testing.T) {
	inEachForm(t, func(t *testing.T, form func(*settings)) {
		f := newFixture(t, form)
		o := f.open(startMessage(withStdin(command("p", "cat")), durationpb.New(time.Hour)), 0)
		o.cut(errors.New("cut"))
		f.awaitUnowned("p")
		acknowledge, write, detach := o.call(f.ctx)
		expectFailure(t, acknowledge(), codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_PROCESS_OWNER_LOST)
		expectFailure(t, write(), codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_PROCESS_OWNER_LOST)
		for range 2 {
			if err := detach(); err != nil {
				t.Errorf("DetachProcess within the grace: %v", err)
			}
		}
		if _, err := f.processes.CloseStdin(f.ctx, &execwirev1.CloseStdinRequest{ProcessId: "p"}); err != nil {
			t.Fatal(err)
		}
		f.waitClosed("p")
		next := command("p", "true")
		next.ReplaceClosed = true // fails during a grace period
		f.start(next)
	})
}

func (f *fixture) awaitUnowned(id string) {
	f.t.Helper()
	for {
		resp, err := f.processes.GetProcess(f.ctx, &execwirev1.GetProcessRequest{ProcessId: id})
		if err != nil {
			f.t.Fatal(err)
		}
		if !resp.GetProcess().GetOwned() {
			return
		}
	}
}

// The write of an owner that waits for space ends with the ownership, and does not delay the
// next owner.
func TestWriteStdin_BlockedOwner_EndsWithOwnership(t *testing.T) {
	for name, end := range map[string]func(*fixture, *owner){
		"taken over": func(f *fixture, _ *owner) { f.resume("p", 0) },
		"lost":       func(_ *fixture, o *owner) { o.cut(errors.New("cut")) },
		"detached": func(f *fixture, o *owner) {
			if _, _, detach := o.call(f.ctx); detach() != nil {
				f.t.Error("failed to detach")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(s *settings) { s.own = testowner.Calls })
			o := f.run(withStdin(command("p", testproc.Argv("never-read")...)))
			write := func(offset uint64) error {
				_, err := f.processes.WriteStdin(f.ctx, &execwirev1.WriteStdinRequest{
					ProcessId: "p", OwnerId: o.started.GetOwnerId(), Offset: offset, Data: make([]byte, 1<<20)})
				return err
			}
			ended := make(chan struct{})
			for offset := range uint64(2) { // the pipe takes some of the first
				if err := write(offset << 20); err != nil && offset == 0 {
					t.Fatal(err)
				}
				if offset == 0 {
					time.AfterFunc(50*time.Millisecond, func() {
						defer close(ended)
						end(f, o)
					})
				}
			}
			<-ended
			if err := write(1 << 20); err == nil {
				t.Error("a write after the end of the ownership was accepted")
			}
		})
	}
}

// A write that is cancelled at any time can be repeated: its bytes are applied once.
func TestWriteStdin_CancelledOwner_IsAppliedOnce(t *testing.T) {
	f := newFixture(t, func(s *settings) {
		s.own = testowner.Calls
		s.limits.RetainedOutputBytes, s.limits.StdinQueueBytes, s.limits.StdinWriteBytes = 64<<10, 8<<10, 4<<10
	})
	o := f.run(withStdin(command("p", "cat")))
	input := make([]byte, 1<<20)
	for i := range input {
		input[i] = byte(rand.Uint32())
	}
	go func() {
		for at := 0; at < len(input) && f.ctx.Err() == nil; {
			to := min(at+1+rand.IntN(1<<rand.IntN(20)), len(input)) // also more than one write, or the queue
			ctx, cancel := context.WithTimeout(f.ctx, time.Duration(rand.IntN(200))*time.Microsecond)
			resp, err := f.processes.WriteStdin(ctx, &execwirev1.WriteStdinRequest{ProcessId: "p", OwnerId: o.started.GetOwnerId(),
				Offset: uint64(at), Data: bytes.Clone(input[at:to]), EndOfFile: to == len(input)})
			cancel()
			if err != nil {
				continue
			}
			if at = int(resp.GetAcceptedOffset()); at < to { // it is more if a cancelled write was longer
				t.Errorf("up to %d was written, %d is accepted", to, at)
			}
		}
	}()
	o.mustEnd()
	if o.out.stdout() != string(input) {
		t.Errorf("the %d bytes of output differ from the %d of input", len(o.out.stdout()), len(input))
	}
}

func TestWriteStdin_OthersWait_OwnerIsNotRefused(t *testing.T) {
	f := newFixture(t, func(s *settings) { s.own = testowner.Calls })
	o := f.run(withStdin(command("p", testproc.Argv("never-read")...)))
	results := make(chan error)
	for range 2 + session.MaxWaitingInput>>20 { // one in the queue, and one too many waits
		go func() {
			_, err := f.processes.WriteStdin(f.ctx, &execwirev1.WriteStdinRequest{ProcessId: "p", Data: make([]byte, 1<<20)})
			select {
			case results <- err:
			case <-f.ctx.Done():
			}
		}()
	}
	err := <-results
	if err == nil {
		err = <-results
	}
	expectFailure(t, err, codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_STDIN_QUEUE_FULL)
	ctx, cancel := context.WithTimeout(f.ctx, 10*time.Millisecond)
	defer cancel()
	_, write, _ := o.call(ctx)
	if err := write(); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the write of the owner, which should wait, failed with %v", err)
	}
}

func TestOwnerCalls_MalformedRequest_NamesField(t *testing.T) {
	f := newFixture(t)
	long := strings.Repeat("x", 257)
	write := func(m *execwirev1.WriteStdinRequest) func() error {
		m.ProcessId = "p"
		return func() error {
			_, err := f.processes.WriteStdin(f.ctx, m)
			return err
		}
	}
	for _, tt := range []struct {
		name, field string
		call        func() error
	}{
		{"offset without an owner", "offset", write(&execwirev1.WriteStdinRequest{Offset: 1})},
		{"end without an owner", "end_of_file", write(&execwirev1.WriteStdinRequest{EndOfFile: true})},
		{"id beside an owner", "write_id", write(&execwirev1.WriteStdinRequest{OwnerId: "o", WriteId: "w"})},
		{"long owner", "owner_id", write(&execwirev1.WriteStdinRequest{OwnerId: long})},
		{"acknowledgement without an owner", "owner_id", func() error {
			_, err := f.processes.AcknowledgeOutput(f.ctx, &execwirev1.AcknowledgeOutputRequest{ProcessId: "p"})
			return err
		}},
		{"detachment of a long owner", "owner_id", func() error {
			_, err := f.processes.DetachProcess(f.ctx, &execwirev1.DetachProcessRequest{ProcessId: "p", OwnerId: long})
			return err
		}},
		{"nothing to own", "message", func() error { return f.ownFailure(&execwirev1.OwnProcessRequest{}) }},
		{"start of nothing", "start.process", func() error {
			return f.ownFailure(&execwirev1.OwnProcessRequest{Message: &execwirev1.OwnProcessRequest_Start{Start: &execwirev1.RunStart{}}})
		}},
		{"start without a program", "start.process.command.direct.argv", func() error {
			return f.ownFailure(&execwirev1.OwnProcessRequest{Message: &execwirev1.OwnProcessRequest_Start{
				Start: &execwirev1.RunStart{Process: command("p")}}})
		}},
		{"negative grace", "resume.grace", func() error {
			return f.ownFailure(&execwirev1.OwnProcessRequest{Message: &execwirev1.OwnProcessRequest_Resume{
				Resume: &execwirev1.RunResume{ProcessId: "p", Grace: seconds(-1)}}})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.call()
			expectFailure(t, err, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
			if got := violatedField(err); got != tt.field {
				t.Errorf("the field is %q, want %q: %v", got, tt.field, err)
			}
		})
	}
}

// ownFailure returns the error of OwnProcess.
func (f *fixture) ownFailure(req *execwirev1.OwnProcessRequest) error {
	stream, err := f.processes.OwnProcess(f.ctx, req)
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}
