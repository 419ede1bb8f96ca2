package bench

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// measureIdle measures the cost of an idle server. Nothing makes it release memory: an
// operator sees the same figure.
func measureIdle(b *bench) []line {
	server := b.startServer()
	b.settle()
	share := share(server.ProcStat) + share(server.Guardian)
	b.raw("at rest: %s resident, %s the share of server and guardian", harness.ShowMiB(server.Resident()), harness.ShowMiB(share))
	lines := []line{within("memory at rest, with the guardian", share, 20<<20, harness.ShowMiB)}
	c := b.dial(server, "unix")
	b.start(c, benchCommand(harness.TrueCommand))
	lines = append(lines, idleConnections(b, server)...)
	return append(lines, idleProcesses(b, server, c)...)
}

// settle waits until a server is idle.
func (b *bench) settle() { time.Sleep(b.sizes.idle * 3 / 5) }

func idleConnections(b *bench, server *harness.Peer) []line {
	before := server.Resident()
	for range b.sizes.connections {
		b.dial(server, "unix")
	}
	b.settle()
	after := server.Resident()
	b.raw("%d connections: %s before, %s after", b.sizes.connections, harness.ShowMiB(before), harness.ShowMiB(after))
	return []line{within("memory per idle connection", (after-before)/int64(b.sizes.connections), 60<<10, showKiB)}
}

func idleProcesses(b *bench, server *harness.Peer, c *client.Client) []line {
	// What was started before is over, or counts.
	b.settle()
	n := b.sizes.processes
	before, descriptors := server.Resident(), server.Descriptors()
	for range n {
		b.start(c, benchCommand("/bin/sleep", "600"))
	}
	b.settle()
	after, opened := server.Resident(), server.Descriptors()-descriptors
	b.raw("%d processes: %s and %d descriptors before, %s and %d after", n, harness.ShowMiB(before), descriptors, harness.ShowMiB(after), opened+descriptors)
	spent := server.CPU()
	time.Sleep(b.sizes.idle)
	spent = server.CPU() - spent
	each := line{what: "descriptors per idle process", ours: fmt.Sprintf("%.2f", float64(opened)/float64(n)),
		budget: "≤ 3", met: opened <= 3*n}
	return []line{
		within("memory per idle process", (after-before)/int64(n), 40<<10, showKiB), each,
		within(fmt.Sprintf("CPU in %v with %d idle processes and %d connections", b.sizes.idle, n, b.sizes.connections+1), spent, 0, harness.ShowTime),
	}
}

// measureFinished measures what remains of processes that have ended and were removed.
func measureFinished(b *bench) []line {
	const size = 1 << 20
	server := b.startServer("EXECWIRE_CLOSED_PROCESS_RETENTION=" + b.sizes.retention.String())
	c := b.dial(server, "unix")
	b.run(c, client.RunOptions{Process: benchCommand(harness.TrueCommand)})
	before := server.Resident()
	for range b.sizes.finished {
		id := b.start(c, benchCommand(zeros(size)...))
		got, err := c.Processes().WaitProcess(b.ctx, &execwirev1.WaitProcessRequest{ProcessId: id,
			Condition: &execwirev1.WaitProcessRequest_Closed{Closed: &execwirev1.WaitForClosed{}}, Wait: durationpb.New(harness.StepTimeout)})
		if err != nil || !got.GetSatisfied() || got.GetProcess().GetExit().GetExitCode() != 0 {
			b.Fatalf("got %v, %v", got, err)
		}
	}
	peak := server.Resident()
	harness.Eventually(b, "the processes are forgotten", func() bool {
		list, err := c.Processes().ListProcesses(b.ctx, &execwirev1.ListProcessesRequest{})
		if err != nil {
			b.Fatal(err)
		}
		return len(list.GetProcesses()) == 0
	})
	forgotten := server.Resident()
	time.Sleep(2 * b.sizes.idle)
	after := server.Resident()
	b.raw("%d finished processes: %s before, %s at the end of the last, %s when they were forgotten, %s %v later",
		b.sizes.finished, harness.ShowMiB(before), harness.ShowMiB(peak), harness.ShowMiB(forgotten), harness.ShowMiB(after), 2*b.sizes.idle)
	return []line{within(fmt.Sprintf("memory left of %d finished processes of 1 MiB, %v after their retention", b.sizes.finished, 2*b.sizes.idle),
		after-before, 16<<20, harness.ShowMiB)}
}

// stallWriter blocks writes until it is opened.
type stallWriter struct {
	stalled chan struct{} // closed when the first bytes wait
	opened  chan struct{}
	once    sync.Once
	discardCounter
}

func (w *stallWriter) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.stalled) })
	<-w.opened
	return w.discardCounter.Write(p)
}

// measureStalled measures what a server retains for a client that stops reading, and that
// nothing is lost when it continues.
func measureStalled(b *bench) []line {
	const retention = 1 << 20 // the default
	server := b.startServer()
	c := b.dial(server, "unix")
	b.run(c, client.RunOptions{Process: benchCommand(harness.TrueCommand)})
	b.settle()
	before := server.Resident()
	w := &stallWriter{stalled: make(chan struct{}), opened: make(chan struct{})}
	ended := make(chan client.Exit, 1)
	go func() {
		ended <- b.run(c, client.RunOptions{Process: benchCommand(zeros(b.sizes.stalledBytes)...), Stdout: w})
	}()
	<-w.stalled
	peak := before
	for deadline := time.Now().Add(b.sizes.idle); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		peak = max(peak, server.Resident())
	}
	close(w.opened)
	exit := <-ended
	if w.n != b.sizes.stalledBytes || exit.StdoutBytes != uint64(w.n) {
		b.Errorf("%d of %d bytes arrived", w.n, b.sizes.stalledBytes)
	}
	b.raw("stalled client: %s before, %s while it stalls, %s after it took all", harness.ShowMiB(before), harness.ShowMiB(peak), harness.ShowMiB(server.Resident()))
	return []line{within(fmt.Sprintf("memory for a client that stops reading %s, nothing lost", harness.ShowMiB(b.sizes.stalledBytes)),
		peak-before, retention+2<<20, harness.ShowMiB)}
}
