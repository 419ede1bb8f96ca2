package bench

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

// zeros writes n bytes, a multiple of 64 KiB, as fast as anything does.
func zeros(n int64) []string {
	return []string{"/usr/bin/dd", "if=/dev/zero", "bs=64k", "count=" + strconv.FormatInt(n>>16, 10), "status=none"}
}

// measureOutput compares the output of a process with a bare stream of the same size. The bare
// stream has no writing process, which matters with few CPUs; a bare stream of a process's
// output is shown too.
func measureOutput(b *bench) []line {
	b.checkOutput()
	server, bare := b.startServer(), b.startBare()
	pipe := b.pipeReadCost()
	var lines []line
	for _, transport := range harness.PeerTransports {
		c, conn := b.dial(server, transport), b.dialBare(bare, transport)
		b.receiveBare(conn, "Output", bareChunk)
		var floor, relay, ours, own transfers
		for range b.sizes.outputRounds {
			floor.add(b, bare, func() { b.receiveBare(conn, "Output", b.sizes.outputBytes) })
			relay.add(b, bare, func() { b.receiveBare(conn, "Relay", b.sizes.outputBytes) })
			ours.add(b, server, func() { b.receiveOutput(c, b.sizes.outputBytes) })
			own.add(b, server, func() { b.receiveOwned(c, b.sizes.outputBytes) })
		}
		b.raw("%s, bare stream: %.0f MiB/s, server CPU %.2f s/GiB", transport, floor.rate, floor.cpu)
		b.raw("%s, bare stream of a process's output: %.0f MiB/s, server CPU %.2f s/GiB", transport, relay.rate, relay.cpu)
		b.raw("%s, RunProcess: %.0f MiB/s, server CPU %.2f s/GiB", transport, ours.rate, ours.cpu)
		b.raw("%s, OwnProcess: %.0f MiB/s, server CPU %.2f s/GiB", transport, own.rate, own.cpu)
		lines = append(lines,
			atLeast("output of one process to its owner, "+transport, floor.rate.Median(), ours.rate.Median(), 0.85, "MiB/s"),
			atLeast("the same, beside a bare stream of a process's output, "+transport, relay.rate.Median(), ours.rate.Median(), 0.85, "MiB/s"),
			cpuLine(transport, pipe, floor.cpu.Median(), ours.cpu.Median()),
			atLeast("output by `OwnProcess` and calls, "+transport, floor.rate.Median(), own.rate.Median(), 0.85, "MiB/s"))
	}
	return lines
}

func cpuLine(transport string, pipe, bare, ours float64) line {
	const limit = 0.7
	return line{
		what: "server CPU for it, " + transport, ours: fmt.Sprintf("%.2f s/GiB", ours),
		floor:  fmt.Sprintf("%.2f pipe + %.2f bare stream", pipe, bare),
		ratio:  fmt.Sprintf("%.2f ×", ours/(pipe+bare)),
		budget: fmt.Sprintf("≤ %v s/GiB", limit), met: ours <= limit,
	}
}

// transfers are the rounds of one way to carry bytes.
type transfers struct {
	rate harness.Samples[float64] // MiB/s
	cpu  harness.Samples[float64] // of the serving process, s/GiB
}

func (t *transfers) add(b *bench, p *harness.Peer, transfer func()) {
	t.addBytes(p, b.sizes.outputBytes, transfer)
}

// addBytes is add of a transfer of n bytes.
func (t *transfers) addBytes(p *harness.Peer, n int64, transfer func()) {
	before := p.CPU()
	took := harness.Timed(transfer)
	spent := p.CPU() - before
	t.rate = append(t.rate, float64(n)/(1<<20)/took.Seconds())
	t.cpu = append(t.cpu, spent.Seconds()/(float64(n)/(1<<30)))
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

// checkOutput checks once, byte by byte, that the received output is what was written.
func (b *bench) checkOutput() {
	b.Helper()
	const size = 8<<20 + 17
	c := b.dial(b.startServer(), "unix")
	verifier := testproc.StdoutPattern.NewVerifier()
	b.run(c, client.RunOptions{
		Process: benchCommand(testproc.Argv("flood", "-bytes", strconv.Itoa(size))...), Stdout: verifier})
	if verifier.Offset() != size {
		b.Fatalf("%d of %d bytes arrived", verifier.Offset(), size)
	}
}

func init() { testproc.Register("bench-read-pipe", readPipe) }

// pipeReadCost returns the CPU time of a process that only reads output from a pipe, in s/GiB:
// the other half of the floor.
func (b *bench) pipeReadCost() float64 {
	b.Helper()
	var cost harness.Samples[float64]
	for range b.sizes.outputRounds {
		argv := testproc.Argv("bench-read-pipe", strconv.FormatInt(b.sizes.outputBytes, 10))
		out, err := exec.Command(argv[0], argv[1:]...).Output()
		if err != nil {
			b.Fatal(err)
		}
		var read, nanoseconds int64
		if _, err := fmt.Sscan(string(out), &read, &nanoseconds); err != nil || read != b.sizes.outputBytes {
			b.Fatalf("the pipe gave %q: %v", out, err)
		}
		cost = append(cost, time.Duration(nanoseconds).Seconds()/(float64(read)/(1<<30)))
	}
	b.raw("reading a pipe: CPU %.2f s/GiB", cost)
	return cost.Median()
}

// readPipe N reads the N bytes that a process writes, and prints the number of bytes and the
// nanoseconds of CPU used.
func readPipe(args []string) int {
	n, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		return 1
	}
	argv := zeros(n)
	cmd := exec.Command(argv[0], argv[1:]...)
	output, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	var read int64
	before := ownCPU()
	for buf := make([]byte, 64<<10); err == nil; {
		var n int
		n, err = output.Read(buf)
		read += int64(n)
	}
	spent := ownCPU() - before
	if wait := cmd.Wait(); err != io.EOF || wait != nil {
		fmt.Fprintln(os.Stderr, err, wait)
		return 1
	}
	fmt.Println(read, spent.Nanoseconds())
	return 0
}

// ownCPU is the CPU time of this process without its children.
func ownCPU() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // cannot fail with these arguments
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
