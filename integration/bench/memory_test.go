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

// measureMemory measures the cost of an idle server, and of what is idle on it. Nothing makes
// it release memory: an operator sees the same figure.
func measureMemory(b *bench) []line {
	server, socketServer := b.startServer(), harness.StartSocketServer(b)
	b.settle()
	rest := server.Memory("Pss") + server.Guardian.Memory("Pss")
	b.raw("at rest: %s resident, %s the share of server and guardian", harness.ShowMiB(server.Memory("Rss")), harness.ShowMiB(rest))
	c := b.dial(server, "TCP")
	b.start(c, benchCommand(harness.TrueCommand))
	harness.StartTrue(b, harness.DialRPC(b, socketServer.URLs[harness.JSONRPC]))
	b.settle()
	connection, _ := b.costs(server, b.sizes.connections, func(int) { b.dial(server, "TCP") })
	socket, _ := b.costs(socketServer, b.sizes.connections, func(int) { harness.DialRPC(b, socketServer.URLs[harness.JSONRPC]) })
	process, descriptors := b.costs(server, b.sizes.processes, func(int) { b.start(c, benchCommand("/bin/sleep", "600")) })
	spent := server.CPU() + socketServer.CPU()
	time.Sleep(b.sizes.idle)
	spent = server.CPU() + socketServer.CPU() - spent
	return []line{
		within("memory at rest, with the guardian", nil, figures{float64(rest)}, 20<<20, showMiB),
		within("memory per idle connection, gRPC", nil, figures{connection}, 60<<10, showKiB),
		within("memory per idle connection with its session, JSON-RPC", nil, figures{socket}, 60<<10, showKiB),
		within("memory per idle process", nil, figures{process}, 40<<10, showKiB),
		within("descriptors per idle process", nil, figures{descriptors}, 3, showCount),
		within(fmt.Sprintf("CPU in %v with %d idle processes and %d connections", b.sizes.idle, b.sizes.processes, 2*b.sizes.connections),
			nil, figures{spent.Seconds()}, 0, showSeconds),
	}
}

// costs returns the memory and the descriptors of each of n things on an idle server.
func (b *bench) costs(server *harness.Peer, n int, add func(i int)) (memory, descriptors float64) {
	b.Helper()
	before, opened := server.Resident(), server.Descriptors()
	for i := range n {
		add(i)
	}
	b.settle()
	return float64(server.Resident()-before) / float64(n), float64(server.Descriptors()-opened) / float64(n)
}

// settle waits until a server is idle.
func (b *bench) settle() { time.Sleep(b.sizes.idle * 3 / 5) }

// measureFinished measures what remains of processes that have ended: while their records are
// kept, and after that.
func measureFinished(b *bench) []line {
	const size = 1 << 20
	server := b.startServer("EXECWIRE_CLOSED_PROCESS_RETENTION=" + b.sizes.retention.String())
	c := b.dial(server, "TCP")
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
	b.settle()
	kept := server.Resident()
	harness.Eventually(b, "the processes are forgotten", func() bool {
		list, err := c.Processes().ListProcesses(b.ctx, &execwirev1.ListProcessesRequest{})
		if err != nil {
			b.Fatal(err)
		}
		return len(list.GetProcesses()) == 0
	})
	time.Sleep(2 * b.sizes.idle)
	after := server.Resident()
	what := fmt.Sprintf("memory of %d finished processes of 1 MiB", b.sizes.finished)
	return []line{
		within(what+", while they are kept", nil, figures{float64(kept - before)}, 16<<20, showMiB),
		within(fmt.Sprintf("%s, %v after their retention", what, 2*b.sizes.idle), nil, figures{float64(after - before)}, 16<<20, showMiB),
	}
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
	server := b.startServer()
	c := b.dial(server, "TCP")
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
	return []line{stalledLine("gRPC", b.sizes.stalledBytes, peak-before)}
}

// stalledLine is the budget of a client that stops reading: the default retention and 2 MiB.
func stalledLine(what string, n, grown int64) line {
	return within(fmt.Sprintf("memory for a client that stops reading %s, nothing lost, %s", harness.ShowMiB(n), what),
		nil, figures{float64(grown)}, 3<<20, showMiB)
}
