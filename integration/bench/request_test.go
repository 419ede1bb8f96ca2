package bench

import (
	"context"
	"errors"
	"fmt"
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

// smallRequestLimit is the budget of a small request, terminateLimit that of an end, in seconds.
const (
	smallRequestLimit = 0.005
	terminateLimit    = 0.05
)

// measureSmallRequest shows that requests do not wait for each other, on a connection with a
// long poll and a blocked write to stdin.
func measureSmallRequest(b *bench) []line {
	c := b.dial(b.startServer(), "TCP")
	p := b.startDeaf(c)
	get := func() { b.get(c, p) }
	alone := b.alternate(b.sizes.requests, 0.99, timed("GetProcess alone", get))
	unstick := b.stick(c, p)
	beside := b.alternate(b.sizes.requests, 0.99, timed("GetProcess beside a long poll and a stuck write", get))
	unstick()
	return []line{within("small request beside a long poll and a stuck write, beside alone, gRPC, p99", alone[0], beside[0], smallRequestLimit, showSeconds)}
}

// measureTerminate times the verified end of a process that has a long poll and a blocked
// write: alone, and while others are killed; with control groups and without.
func measureTerminate(b *bench) []line {
	var lines []line
	for _, kind := range []struct {
		name     string
		settings []string
	}{{"control groups", nil}, {"no control groups", []string{"EXECWIRE_CGROUP=off"}}} {
		c := b.dial(b.startServer(kind.settings...), "TCP")
		times := b.alternate(b.sizes.terminations, 0.99,
			way{"terminate, " + kind.name, func() time.Duration { return b.terminateStuck(c) }},
			way{"terminate while others are killed, " + kind.name, func() time.Duration { return b.terminateAmong(c, b.sizes.others) }})
		lines = append(lines,
			within("terminate beside a long poll and a stuck write, "+kind.name+", p99", nil, times[0], terminateLimit, showSeconds),
			within(fmt.Sprintf("the same while %d others are killed, %s, p99", b.sizes.others, kind.name), nil, times[1], terminateLimit, showSeconds))
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

// get is a small request.
func (b *bench) get(c *client.Client, id string) {
	b.Helper()
	got, err := c.Processes().GetProcess(b.ctx, &execwirev1.GetProcessRequest{ProcessId: id})
	if err != nil || got.GetProcess().GetState() != execwirev1.ProcessState_PROCESS_STATE_RUNNING {
		b.Fatalf("got %v, %v", got, err)
	}
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

// terminateStuck times the end of a process that has a long poll and a blocked write.
func (b *bench) terminateStuck(c *client.Client) time.Duration {
	b.Helper()
	id := b.startDeaf(c)
	unstick := b.stick(c, id)
	defer unstick()
	return harness.Timed(func() { b.terminate(c, id) })
}

// terminateAmong times one end while n other processes are killed.
func (b *bench) terminateAmong(c *client.Client, n int) time.Duration {
	b.Helper()
	others := make([]string, n)
	for i := range others {
		others[i] = b.startDeaf(c)
	}
	var killing sync.WaitGroup
	defer killing.Wait()
	id := b.startDeaf(c)
	for _, other := range others {
		killing.Go(func() { b.terminate(c, other) })
	}
	return harness.Timed(func() { b.terminate(c, id) })
}

func (b *bench) terminate(c *client.Client, id string) {
	got, err := c.Processes().TerminateProcess(b.ctx, &execwirev1.TerminateProcessRequest{ProcessId: id, Termination: killed})
	if err != nil || got.GetExit().GetSignal() == 0 || !got.GetVerifiedEmpty() {
		b.Errorf("got %v, %v", got, err) // not Fatal: ends go on in several goroutines
	}
}

var _ testing.TB = (*bench)(nil)
