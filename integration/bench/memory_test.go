package bench

import (
	"fmt"
	"sync"
	"time"

	"github.com/execwire/execwire/client"
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
// kept, and after that. Some had no owner, and the owners of others have acknowledged their end.
func measureFinished(b *bench) []line {
	size := int64(1 << 20)
	setting := "EXECWIRE_CLOSED_PROCESS_RETENTION=" + b.sizes.retention.String()
	unowned, owned, jsonrpc := b.startServer(setting), b.startServer(setting), harness.StartSocketServer(b, setting)
	without, with, socket := b.dial(unowned, "TCP"), b.dial(owned, "TCP"), harness.DialRPCUnread(b, jsonrpc.URLs[harness.JSONRPC])
	ways := []struct {
		name   string
		server *harness.Peer
		run    func()
		before int64
	}{
		{"without an owner", unowned, func() { b.writeUnowned(without, size) }, 0},
		{"`RunProcess`", owned, func() { b.receiveOutput(with, size) }, 0},
		{"JSON-RPC", jsonrpc, func() { b.receiveOutputJSON(socket, 1, size, zeros(size)...) }, 0},
	}
	for _, w := range ways {
		w.run()
	}
	time.Sleep(2 * b.sizes.retention)
	var lines []line
	what := fmt.Sprintf("memory of %d finished processes of 1 MiB, ", b.sizes.finished)
	for i, w := range ways {
		ways[i].before = w.server.Resident()
		for range b.sizes.finished {
			w.run()
		}
		b.settle()
		kept := w.server.Resident() - ways[i].before
		lines = append(lines, within(what+w.name+", while they are kept", nil, figures{float64(kept)}, 16<<20, showMiB))
	}
	time.Sleep(b.sizes.retention + 2*b.sizes.idle)
	for _, w := range ways {
		after := w.server.Resident() - w.before
		lines = append(lines, within(fmt.Sprintf("%s%s, %v after their retention", what, w.name, 2*b.sizes.idle), nil, figures{float64(after)}, 16<<20, showMiB))
	}
	return lines
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
