package transports

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

// outputScenarios are about the output of processes.
var outputScenarios = []scenario{
	{name: "output whole and in order", do: wholeOutput},
	{name: "a late subscriber", do: lateSubscriber, except: notWithJSON("a process cannot be left behind")},
	{name: "several subscribers", do: severalSubscribers, except: notWithJSON("a process cannot be left behind")},
	{name: "a slow subscriber", do: slowSubscriber, except: otherwiseWithJSON("a slow subscriber, who is told of gaps")},
	{name: "a slow subscriber, who is told of gaps", do: slowSubscriberWithGaps, only: overJSON},
	{name: "retained output", do: retainedOutput, except: notWithJSON("a process cannot be left behind")},
	{name: "a snapshot", do: snapshotOfOutput, except: notWithJSON("a process cannot be left behind")},
	{name: "nobody's output", do: unsubscribedOutput},
	{name: "output that nobody takes", do: untakenOutput},
}

const (
	muchStdout = 3 << 20
	muchStderr = 1 << 20
)

func flooding() []string {
	return harness.Program("flood", "-bytes", "3145728", "-stderr", "1048576", "-chunk", "10000")
}

// patterns are writers that accept exactly the output of flooding.
type patterns struct{ stdout, stderr *testproc.Verifier }

func newPatterns() patterns {
	return patterns{stdout: testproc.StdoutPattern.NewVerifier(), stderr: testproc.StderrPattern.NewVerifier()}
}

func (p patterns) expectWhole(v *scenarioRun) {
	v.Helper()
	if p.stdout.Offset() != muchStdout || p.stderr.Offset() != muchStderr {
		v.Errorf("%d and %d bytes, want %d and %d", p.stdout.Offset(), p.stderr.Offset(), muchStdout, muchStderr)
	}
}

func wholeOutput(v *scenarioRun) error {
	p := newPatterns()
	exit, err := v.client.Run(v.ctx, client.RunOptions{Process: v.process(flooding()), Stdout: p.stdout, Stderr: p.stderr})
	if err != nil {
		return err
	}
	v.expectExit(exit, 0, 0, harness.ByItself)
	p.expectWhole(v)
	if exit.StdoutBytes != muchStdout || exit.StderrBytes != muchStderr {
		v.Errorf("the totals are %+v", exit)
	}
	return nil
}

// order checks the order of events: every seq once, the exit once, the close last.
type order struct {
	testing.TB
	last           uint64
	exited, closed bool
}

func (o *order) take(e *execwirev1.ProcessEvent) error {
	o.Helper()
	if e.GetSeq() != o.last+1 || o.closed || o.exited && e.GetExited() != nil || e.GetClosed() != nil && !o.exited {
		o.Errorf("after seq %d (exited %v, closed %v) came %.200q", o.last, o.exited, o.closed, e.String())
	}
	o.last = e.GetSeq()
	o.exited = o.exited || e.GetExited() != nil
	o.closed = o.closed || e.GetClosed() != nil
	return nil
}

func (o *order) expectEnd() {
	o.Helper()
	if !o.closed {
		o.Errorf("it never closed: the last seq is %d", o.last)
	}
}

// ended starts a process and waits until it has closed.
func (v *scenarioRun) ended(argv []string) (string, error) {
	v.Helper()
	id, err := v.start(argv)
	if err != nil {
		return "", err
	}
	_, err = v.client.Wait(v.ctx, &execwirev1.WaitProcessRequest{ProcessId: id,
		Condition: &execwirev1.WaitProcessRequest_Closed{Closed: &execwirev1.WaitForClosed{}}})
	return id, err
}

func lateSubscriber(v *scenarioRun) error {
	id, err := v.ended(harness.Shell("echo one; echo two >&2; sleep 0.01; echo three; exit 4"))
	if err != nil {
		return err
	}
	for range 2 {
		var stdout, stderr bytes.Buffer
		events := &order{TB: v}
		exit, err := v.client.Follow(v.ctx, client.ProcessRef{ProcessID: id}, client.FollowOptions{Stdout: &stdout, Stderr: &stderr, OnEvent: events.take})
		if err != nil {
			return err
		}
		events.expectEnd()
		v.expectExit(exit, 4, 0, harness.ByItself)
		v.expectText("stdout", stdout.String(), "one\nthree\n")
		v.expectText("stderr", stderr.String(), "two\n")
	}
	return nil
}

func severalSubscribers(v *scenarioRun) error {
	id, err := v.start(v.counting(2))
	if err != nil {
		return err
	}
	v.let(0)
	ctx, done := context.WithCancelCause(v.ctx)
	defer done(nil)
	var following sync.WaitGroup
	var mu sync.Mutex
	heard := 0
	var said [3]bytes.Buffer
	var failed [3]error
	for i := range said {
		following.Go(func() {
			_, failed[i] = v.client.Follow(ctx, client.ProcessRef{ProcessID: id}, client.FollowOptions{Stdout: &said[i],
				OnEvent: func(e *execwirev1.ProcessEvent) error {
					mu.Lock()
					defer mu.Unlock()
					if heard++; heard == len(said) {
						v.let(1) // all have received the first line
					}
					return nil
				}})
			if failed[i] != nil {
				done(failed[i])
			}
		})
	}
	following.Wait()
	for i := range said {
		v.expectText("what a subscriber hears", said[i].String(), "1\n2\n")
	}
	return errors.Join(failed[:]...)
}

// gated is a writer that blocks until it is opened.
type gated struct {
	io.Writer
	reached chan struct{} // closed when there is something to take
	once    sync.Once
	open    chan struct{}
}

func (g *gated) Write(p []byte) (int, error) {
	g.once.Do(func() { close(g.reached) })
	<-g.open
	return g.Writer.Write(p)
}

// slowSubscriber: a subscriber that does not read blocks only its process.
func slowSubscriber(v *scenarioRun) error {
	p := newPatterns()
	slow := &gated{Writer: p.stdout, reached: make(chan struct{}), open: make(chan struct{})}
	var running sync.WaitGroup
	var failed error
	over := make(chan struct{})
	running.Go(func() {
		_, failed = v.client.Run(v.ctx, client.RunOptions{Process: v.process(flooding()), Stdout: slow, Stderr: p.stderr})
		close(over)
	})
	select {
	case <-slow.reached:
	case <-over:
	}
	other := newPatterns()
	exit, err := v.client.Run(v.ctx, client.RunOptions{Process: v.process(flooding()), Stdout: other.stdout, Stderr: other.stderr})
	close(slow.open)
	running.Wait()
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	v.expectExit(exit, 0, 0, harness.ByItself)
	other.expectWhole(v)
	p.expectWhole(v)
	return nil
}

func retainedOutput(v *scenarioRun) error {
	id, err := v.start(harness.Shell("printf one; until [ -e go1 ]; do sleep 0.005; done; printf two >&2; until [ -e go2 ]; do sleep 0.005; done; printf three"))
	if err != nil {
		return err
	}
	if _, err := v.client.Follow(v.ctx, client.ProcessRef{ProcessID: id}, client.FollowOptions{OnEvent: func(e *execwirev1.ProcessEvent) error {
		v.let(int(e.GetSeq()))
		return nil
	}}); err != nil {
		return err
	}
	var after uint64
	var said string
	for range 20 {
		one := uint32(1)
		response, err := v.client.Processes().ReadOutput(v.ctx, &execwirev1.ReadOutputRequest{ProcessId: id, AfterSeq: after, MaxBytes: &one})
		if err != nil {
			return client.FromRPC(err)
		}
		if after = response.GetNextAfterSeq(); len(response.GetEvents()) == 0 {
			break
		}
		for _, e := range response.GetEvents() {
			said += string(e.GetOutput().GetData())
		}
		if !response.GetClosed() || response.GetExit().GetExitCode() != 0 || response.GetLastSeq() != 5 {
			v.Errorf("a read after the end: %v", response)
		}
	}
	v.expectText("what is retained", said, "onetwothree")
	return nil
}

func snapshotOfOutput(v *scenarioRun) error {
	id, err := v.ended(harness.Shell("printf one; printf two >&2; printf three"))
	if err != nil {
		return err
	}
	snapshot, err := v.client.Processes().SnapshotOutput(v.ctx, &execwirev1.SnapshotOutputRequest{ProcessId: id})
	if err != nil {
		return client.FromRPC(err)
	}
	for _, s := range snapshot.GetStreams() {
		want := map[execwirev1.OutputStream]string{harness.StdoutOf: "onethree", harness.StderrOf: "two"}[s.GetStream()]
		v.expectText(s.GetStream().String(), string(s.GetHead())+string(s.GetTail()), want)
	}
	return nil
}

func unsubscribedOutput(v *scenarioRun) error {
	_, err := v.client.Follow(v.ctx, client.ProcessRef{ProcessID: "nobody"}, client.FollowOptions{})
	v.expectReason("to follow nobody", err, "PROCESS_NOT_FOUND")
	_, err = v.client.Resume(v.ctx, client.ProcessRef{ProcessID: "nobody"}, client.RunOptions{})
	v.expectReason("to resume nobody", err, "PROCESS_NOT_FOUND")
	if slices.Contains(overJSON, v.endpoint.protocol) {
		return nil // ReadOutput is not there
	}
	_, err = v.client.Processes().ReadOutput(v.ctx, &execwirev1.ReadOutputRequest{ProcessId: "nobody"})
	v.expectReason("to read of nobody", client.FromRPC(err), "PROCESS_NOT_FOUND")
	return nil
}

var errFull = errors.New("full")

type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, errFull }

// untakenOutput: a writer that fails ends the run and the process.
func untakenOutput(v *scenarioRun) error {
	request := v.process(flooding())
	_, err := v.client.Run(v.ctx, client.RunOptions{Process: request, Stdout: fullWriter{}})
	var failed *client.OutputError
	if !errors.As(err, &failed) || !errors.Is(err, errFull) || failed.Stream != harness.StdoutOf {
		return err
	}
	response, err := v.client.Wait(v.ctx, &execwirev1.WaitProcessRequest{ProcessId: request.GetProcessId(),
		Condition: &execwirev1.WaitProcessRequest_Exit{Exit: &execwirev1.WaitForExit{}}})
	if err == nil && response.GetProcess().GetExit().GetCause() != harness.Terminated {
		v.Errorf("it ended with %v", response)
	}
	return err
}

// slowSubscriberWithGaps: a subscriber that does not read while others use the connection
// loses evicted output, and receives the gaps.
func slowSubscriberWithGaps(v *scenarioRun) error {
	var written countedBytes
	gaps := 0
	slow := &gated{Writer: &written, reached: make(chan struct{}), open: make(chan struct{})}
	var running sync.WaitGroup
	var failed error
	over := make(chan struct{})
	running.Go(func() {
		defer close(over)
		_, failed = v.client.Run(v.ctx, client.RunOptions{Process: v.process(flooding()), Stdout: slow, Stderr: &written,
			OnGap: func(*execwirev1.OutputGap) { gaps++ }})
	})
	select {
	case <-slow.reached:
	case <-over:
	}
	other := newPatterns()
	_, err := v.client.Run(v.ctx, client.RunOptions{Process: v.process(flooding()), Stdout: other.stdout, Stderr: other.stderr})
	close(slow.open)
	running.Wait()
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	other.expectWhole(v)
	if whole := written == muchStdout+muchStderr; whole != (gaps == 0) {
		v.Errorf("received %d bytes of %d, and %d gaps were reported", written, muchStdout+muchStderr, gaps)
	}
	return nil
}

// countedBytes is a writer that counts bytes.
type countedBytes uint64

func (c *countedBytes) Write(p []byte) (int, error) {
	*c += countedBytes(len(p))
	return len(p), nil
}
