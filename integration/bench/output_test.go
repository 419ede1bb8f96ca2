package bench

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

// The budgets of output and of the server's CPU for it.
const (
	outputRatio    = 0.95
	outputCPURatio = 1.15
)

// atOnce is how many processes write at once where it is more than one.
const atOnce = 8

// zeros writes n bytes, a multiple of 64 KiB, as fast as anything does.
func zeros(n int64) []string {
	return []string{"/usr/bin/dd", "if=/dev/zero", "bs=64k", "count=" + strconv.FormatInt(n>>16, 10), "status=none"}
}

// outputLines are the budgets of output that was carried after its floor.
func outputLines(what string, floor, ours transferred) []line {
	return []line{
		atLeast("output of "+what, floor.rate, ours.rate, outputRatio, showMiBRate),
		atMost("server CPU for it", floor.cpu, ours.cpu, outputCPURatio, showCPU),
	}
}

// measureOutput compares the output of a process with the shortest relay of one, through our
// client and through a stock one.
func measureOutput(b *bench) []line {
	b.checkOutput()
	server, floor := b.startServer(), b.startFloor()
	n := b.sizes.outputBytes
	c, conn := b.dial(server, "TCP"), b.channel(floor, tuned()...)
	stock, stockConn := execwirev1.NewProcessServiceClient(b.channel(server)), b.channel(floor)
	got := b.carry(n,
		transfer{"output, floor", floor, func() { b.runFloor(conn, n, zeros(n)...) }},
		transfer{"output, RunProcess", server, func() { b.receiveOutput(c, n) }},
		transfer{"output, floor, stock client", floor, func() { b.runFloor(stockConn, n, zeros(n)...) }},
		transfer{"output, RunProcess, stock client", server, func() { b.stockRun(stock, n, zeros(n)...) }},
		transfer{"output without an owner, to a file", server, func() { b.writeUnowned(c, n) }})
	lines := append(outputLines("one process, `RunProcess`", got[0], got[1]),
		outputLines("one process, `RunProcess`, stock client", got[2], got[3])...)
	return append(lines, atLeast("output without an owner, to a file, beside `RunProcess`", got[1].rate, got[4].rate, 0.7, showMiBRate))
}

// receiveOutput runs a process that writes n bytes. The client checks offsets and
// acknowledges.
func (b *bench) receiveOutput(c *client.Client, n int64) {
	b.Helper()
	var got discardCounter
	exit := b.run(c, client.RunOptions{Process: benchCommand(zeros(n)...), Stdout: &got})
	if got.n != n || exit.StdoutBytes != uint64(n) {
		b.Fatalf("%d of %d bytes were written, %d announced", got.n, n, exit.StdoutBytes)
	}
}

// writeUnowned waits for the end of a process without an owner, whose output goes to a file. Most of
// it is more than the file keeps.
func (b *bench) writeUnowned(c *client.Client, n int64) {
	b.Helper()
	id := b.start(c, benchCommand(zeros(n)...))
	closed, err := c.Wait(b.ctx, &execwirev1.WaitProcessRequest{ProcessId: id,
		Condition: &execwirev1.WaitProcessRequest_Closed{Closed: &execwirev1.WaitForClosed{}}})
	if err != nil {
		b.Fatal(err)
	}
	if exit := closed.GetProcess().GetExit(); exit.GetExitCode() != 0 {
		b.Fatalf("it ended with %v", exit)
	}
}

// checkOutput checks once, byte by byte, that the received output is what was written.
func (b *bench) checkOutput() {
	b.Helper()
	const size = 8<<20 + 17
	c := b.dial(b.startServer(), "TCP")
	verifier := testproc.StdoutPattern.NewVerifier()
	b.run(c, client.RunOptions{
		Process: benchCommand(testproc.Argv("flood", "-bytes", strconv.Itoa(size))...), Stdout: verifier})
	if verifier.Offset() != size {
		b.Fatalf("%d of %d bytes arrived", verifier.Offset(), size)
	}
}

// measureOutputJSON compares the output of processes over one websocket with the shortest
// relay of it: of one process, and of several at once.
func measureOutputJSON(b *bench) []line {
	server, floor := harness.StartSocketServer(b), b.startFloor()
	b.checkOutputJSON(server)
	c, socket := harness.DialRPCUnread(b, server.URLs[harness.JSONRPC]), b.floorSocket(floor, "run")
	n := b.sizes.outputBytes
	var lines []line
	for _, processes := range []int{1, atOnce} {
		argv := zeros(n / int64(processes))
		got := b.carry(n,
			transfer{fmt.Sprintf("output of %d over the websocket, floor", processes), floor, func() { b.runSocket(socket, processes, n, argv...) }},
			transfer{fmt.Sprintf("output of %d over the websocket", processes), server, func() { b.receiveOutputJSON(c, processes, n, argv...) }})
		what := "one process, JSON-RPC"
		if processes > 1 {
			what = fmt.Sprintf("%d processes at once, JSON-RPC", processes)
		}
		lines = append(lines, outputLines(what, got[0], got[1])...)
	}
	return lines
}

// benchMessages carries messages of JSON-RPC.
type benchMessages interface {
	Send(opcode byte, message []byte)
	// Next returns the next message, until the next call.
	Next() ([]byte, error)
}

// receiveOutputJSON runs a program so many times at once and checks that the output of all
// is complete, without decoding it.
func (b *bench) receiveOutputJSON(c benchMessages, times int, n int64, argv ...string) {
	b.Helper()
	for range times {
		c.Send(harness.OpText, fmt.Appendf(nil, `{"id":1,"method":"process/start","params":%s}`,
			harness.StartParams(harness.ProcessID(), `,"tty":false`, argv...)))
	}
	var received int64
	for closed := 0; closed < times; {
		m, err := c.Next()
		if err != nil {
			b.Fatal(err)
		}
		if n := chunkBytes(m); n >= 0 {
			received += int64(n)
			continue
		}
		switch {
		case bytes.Contains(m, []byte(`"process/closed"`)):
			closed++
		case !bytes.HasPrefix(m, []byte(`{"id":1,"result"`)) && !bytes.Contains(m, []byte(`"exitCode":0`)):
			b.Fatalf("got %s", m)
		}
	}
	if received != n {
		b.Fatalf("%d of %d bytes arrived", received, n)
	}
}

// checkOutputJSON checks once that the received output is what was written.
func (b *bench) checkOutputJSON(server *harness.Peer) {
	b.Helper()
	const size = 8<<20 + 17
	c := harness.DialRPC(b, server.URLs[harness.JSONRPC])
	id := harness.ProcessID()
	events, end := c.Follow(id)
	defer end()
	c.Call("process/start", harness.StartParams(id, `,"tty":false`, testproc.Argv("flood", "-bytes", fmt.Sprint(size))...))
	verifier := testproc.StdoutPattern.NewVerifier()
	for m := range events {
		if m.Method == "process/closed" {
			break
		}
		if _, err := verifier.Write(m.Params.Chunk); err != nil {
			b.Fatal(err)
		}
	}
	if verifier.Offset() != size {
		b.Fatalf("%d of %d bytes arrived", verifier.Offset(), size)
	}
}
