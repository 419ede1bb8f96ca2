package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// startRatio is the budget of a start beside the same on the floor.
const startRatio = 1.25

// measureStart times /bin/true from its start until the client has all of it.
func measureStart(b *bench) []line {
	server, socketServer, floor := b.startServer(), harness.StartSocketServer(b), b.startFloor()
	c, conn := b.dial(server, "TCP"), b.channel(floor, tuned()...)
	rpc, socket := harness.DialRPCUnread(b, socketServer.URLs[harness.JSONRPC]), b.floorSocket(floor, "run")
	times := b.alternate(b.sizes.spawns, 0.5,
		timed("floor, gRPC", func() { b.runFloor(conn, 0, harness.TrueCommand) }),
		timed("RunProcess", func() { b.runTrue(c) }),
		timed("StartProcess and WatchProcess", func() { b.watchTrue(c) }),
		timed("floor, websocket", func() { b.runSocket(socket, 1, 0, harness.TrueCommand) }),
		timed("process/start to process/closed", func() { b.startTrueAlone(rpc) }))
	return []line{
		atMost("start → closed, `RunProcess`, p50", times[0], times[1], startRatio, showSeconds),
		atMost("start → closed, `StartProcess` and `WatchProcess`, p50", times[0], times[2], startRatio, showSeconds),
		atMost("start → closed, JSON-RPC, p50", times[3], times[4], startRatio, showSeconds),
	}
}

// runTrue runs the shortest process through RunProcess.
func (b *bench) runTrue(c *client.Client) {
	b.run(c, client.RunOptions{Process: benchCommand(harness.TrueCommand)})
}

// watchTrue runs it through StartProcess and WatchProcess.
func (b *bench) watchTrue(c *client.Client) {
	started, err := c.Processes().StartProcess(b.ctx, benchCommand(harness.TrueCommand))
	if err != nil {
		b.Fatal(err)
	}
	watch, err := c.Processes().WatchProcess(b.ctx, &execwirev1.WatchProcessRequest{
		ProcessId: started.GetProcess().GetProcessId()})
	if err != nil {
		b.Fatal(err)
	}
	var last *execwirev1.ProcessEvent
	for {
		m, err := watch.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			b.Fatal(err)
		}
		last = m.GetEvents()[len(m.GetEvents())-1]
	}
	if last.GetClosed() == nil {
		b.Fatalf("the last event was %v", last)
	}
}

// startTrueAlone is harness.StartTrue on an otherwise idle connection.
func (b *bench) startTrueAlone(c *harness.RawRPC) {
	c.Send(harness.OpText, fmt.Appendf(nil, `{"id":1,"method":"process/start","params":%s}`, harness.StartParams(harness.ProcessID(), `,"tty":false`, harness.TrueCommand)))
	for _, part := range []string{`{"id":1,"result":{"processId":`, `"exitCode":0`, `"process/closed"`} {
		if m, err := c.Next(); err != nil || !bytes.Contains(m, []byte(part)) {
			b.Fatalf("got %s in place of %s: %v", m, part, err)
		}
	}
}

// inFlight is the number of concurrent processes when their rate is measured.
const inFlight = 64

// measureRate compares short processes at once with os/exec in the benchmark itself.
func measureRate(b *bench) []line {
	server, socketServer := b.startServer(), harness.StartSocketServer(b)
	c, rpc := b.dial(server, "TCP"), harness.DialRPC(b, socketServer.URLs[harness.JSONRPC])
	stock := execwirev1.NewProcessServiceClient(b.channel(server))
	ways := []struct {
		name string
		do   func()
	}{
		{"os/exec", b.execTrue},
		{"RunProcess", func() { b.runTrue(c) }},
		{"RunProcess, stock client", func() { b.stockRun(stock, 0, harness.TrueCommand) }},
		{"JSON-RPC", func() { harness.StartTrue(b, rpc) }},
	}
	rates := make([]figures, len(ways))
	for range b.sizes.rounds {
		for i, w := range ways {
			rates[i] = append(rates[i], spawnRate(b.sizes.rateSpawns, w.do))
		}
	}
	var lines []line
	for i, w := range ways {
		b.raw("short processes, %s: %.0f /s", w.name, rates[i])
		if i > 0 {
			lines = append(lines, atLeast(fmt.Sprintf("short processes, %d in flight, %s", inFlight, w.name), rates[0], rates[i], 0.75, showRate))
		}
	}
	return lines
}

// execTrue runs the shortest process with nothing connected.
func (b *bench) execTrue() {
	if err := (&exec.Cmd{Path: harness.TrueCommand, Args: []string{harness.TrueCommand}, Env: []string{"PATH=/usr/bin:/bin"}}).Run(); err != nil {
		b.Error(err)
	}
}

// spawnRate runs n processes, inFlight at once, and returns how many that is per second.
func spawnRate(n int, spawn func()) float64 {
	work := make(chan struct{}, n)
	for range n {
		work <- struct{}{}
	}
	close(work)
	took := harness.Timed(func() {
		var workers sync.WaitGroup
		for range inFlight {
			workers.Go(func() {
				for range work {
					spawn()
				}
			})
		}
		workers.Wait()
	})
	return float64(n) / took.Seconds()
}

// stockRun runs a process that writes n bytes, as a client does that has only the contract:
// it acknowledges at a quarter of the window, and the end.
func (b *bench) stockRun(processes execwirev1.ProcessServiceClient, n int64, argv ...string) {
	b.Helper()
	stream, err := processes.RunProcess(b.ctx)
	if err == nil {
		err = stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{
			Start: &execwirev1.RunStart{Process: benchCommand(argv...)}}})
	}
	var received, acknowledged, window int64
	closed := false
	for err == nil {
		var m *execwirev1.RunProcessResponse
		if m, err = stream.Recv(); err != nil {
			break
		}
		if started := m.GetStarted(); started != nil {
			window = int64(started.GetOutputWindowBytes())
		}
		var seq uint64
		for _, event := range m.GetEvents().GetEvents() {
			received += int64(len(event.GetOutput().GetData()))
			closed = closed || event.GetClosed() != nil
			seq = event.GetSeq()
		}
		if closed || received-acknowledged >= window/4 && seq > 0 {
			acknowledged = received
			err = stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Acknowledge{
				Acknowledge: &execwirev1.RunAcknowledge{Seq: seq}}})
		}
	}
	// Not Fatal: runs go on in several goroutines.
	if !errors.Is(err, io.EOF) || !closed || received != n {
		b.Errorf("the stream ended with %d bytes of %d, closed %t: %v", received, n, closed, err)
	}
}
