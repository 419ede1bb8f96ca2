package bench

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// killed ends a process at once.
var killed = &execwirev1.Termination{Mode: &execwirev1.Termination_Force{Force: &execwirev1.ForcedTermination{}}}

// measureSmallRequest shows that requests do not wait for each other, on a connection with a
// long poll and a blocked write to stdin.
func measureSmallRequest(b *bench) []line {
	server := b.startServer()
	var lines []line
	for _, transport := range harness.PeerTransports {
		c := b.dial(server, transport)
		p := b.startDeaf(c)
		alone := b.getTimes(c, p)
		unstick := b.stick(c, p)
		beside := b.getTimes(c, p)
		unstick()
		b.rawTimes("GetProcess alone, "+transport, alone)
		b.rawTimes("GetProcess beside a long poll and a stuck write, "+transport, beside)
		ends := b.terminateTimes(c)
		b.rawTimes("TerminateProcess beside them, "+transport, ends)
		l := within("small request beside a long poll and a stuck write, "+transport+", p99", beside.Quantile(0.99), 5*time.Millisecond, harness.ShowTime)
		l.floor = harness.ShowTime(alone.Quantile(0.99)) + " alone"
		lines = append(lines, l,
			within("terminate beside them, "+transport+", p99", ends.Quantile(0.99), 50*time.Millisecond, harness.ShowTime))
	}
	return lines
}

// startDeaf starts a process that neither reads its stdin nor writes.
func (b *bench) startDeaf(c *client.Client) string {
	b.Helper()
	request := benchCommand("/bin/sleep", "600")
	request.Io = &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Pipes{
		Pipes: &execwirev1.PipeIo{Stdin: execwirev1.StdinMode_STDIN_MODE_PIPE}}}
	return b.start(c, request)
}

// start starts a process without an owner and returns its ID.
func (b *bench) start(c *client.Client, request *execwirev1.StartProcessRequest) string {
	b.Helper()
	started, err := c.Processes().StartProcess(b.ctx, request)
	if err != nil {
		b.Fatal(err)
	}
	return started.GetProcess().GetProcessId()
}

// getTimes times GetProcess.
func (b *bench) getTimes(c *client.Client, id string) harness.Samples[time.Duration] {
	b.Helper()
	var times harness.Samples[time.Duration]
	for range b.sizes.requests {
		times = append(times, harness.Timed(func() {
			got, err := c.Processes().GetProcess(b.ctx, &execwirev1.GetProcessRequest{ProcessId: id})
			if err != nil || got.GetProcess().GetState() != execwirev1.ProcessState_PROCESS_STATE_RUNNING {
				b.Fatalf("got %v, %v", got, err)
			}
		}))
	}
	return times
}

var errUnstuck = errors.New("the measurement is over")

// stick starts a long poll of a process and a blocked write to its stdin, and returns a
// function that ends both.
func (b *bench) stick(c *client.Client, id string) (unstick func()) {
	b.Helper()
	ctx, cancel := context.WithCancelCause(b.ctx)
	var calls sync.WaitGroup
	calls.Go(func() {
		_, err := c.Processes().ReadOutput(ctx, &execwirev1.ReadOutputRequest{
			ProcessId: id, Wait: durationpb.New(harness.StepTimeout)})
		if ctx.Err() == nil && err != nil {
			b.Errorf("the long poll ended: %v", err)
		}
	})
	first := make(chan struct{})
	calls.Go(func() {
		var err error
		for n := 0; err == nil; n++ {
			// The first fills the pipe and the queue, the next waits.
			_, err = c.Processes().WriteStdin(ctx, &execwirev1.WriteStdinRequest{ProcessId: id, Data: make([]byte, 1<<20)})
			if n == 0 {
				close(first)
			}
		}
		if ctx.Err() == nil && client.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_STDIN_CLOSED {
			b.Errorf("the write ended: %v", err)
		}
	})
	<-first
	return func() {
		cancel(errUnstuck)
		calls.Wait()
	}
}

// terminateTimes times the end of processes that each have a long poll and a blocked write.
func (b *bench) terminateTimes(c *client.Client) harness.Samples[time.Duration] {
	b.Helper()
	var times harness.Samples[time.Duration]
	for range b.sizes.terminations {
		id := b.startDeaf(c)
		unstick := b.stick(c, id)
		times = append(times, harness.Timed(func() {
			got, err := c.Processes().TerminateProcess(b.ctx, &execwirev1.TerminateProcessRequest{ProcessId: id, Termination: killed})
			if err != nil || got.GetExit().GetSignal() == 0 {
				b.Fatalf("got %v, %v", got, err)
			}
		}))
		unstick()
	}
	return times
}

var _ testing.TB = (*bench)(nil)
