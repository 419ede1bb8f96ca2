package integration

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/execwire/execwire/internal/testproc"
)

// The rows of the JSON-RPC door, over a websocket.

const jsonRPC = "JSON-RPC"

// startSocketServer runs `execwire serve` with the websocket door alone.
func (b *bench) startSocketServer(settings ...string) *benchPeer {
	b.Helper()
	settings = append(settings, "EXECWIRE_SHUTDOWN_GRACE_PERIOD=0s")
	return b.startPeer(settings, execwire, "serve", "--log-level", "warn", "--listen", "ws://127.0.0.1:0")
}

// startBareSocket runs the floor.
func (b *bench) startBareSocket() *benchPeer {
	b.Helper()
	argv := testproc.Argv("bench-bare-socket")
	return b.startPeer(nil, argv[0], argv[1:]...)
}

var processNumber atomic.Int64

// processID is one that was not used before.
func processID() string { return fmt.Sprintf("p%d", processNumber.Add(1)) }

// startTrue runs the shortest process from start to closed.
func (b *bench) startTrue(c *benchRPC) {
	id := processID()
	events, end := c.follow(id)
	defer end()
	answer := c.request("process/start", startParams(id, `,"tty":false`, truth))
	exited := false
	for m := range events {
		switch m.Method {
		case "process/exited":
			exited = m.Params.ExitCode != nil && *m.Params.ExitCode == 0
		case "process/closed":
			if started := <-answer; started.Result == nil || !exited {
				b.Errorf("a process was answered %s and had a good exit: %t", started.Error, exited)
			}
			return
		}
	}
}

func measureSpawnJSON(b *bench) []line {
	c := b.dialRPCUnread(b.startSocketServer().urls[jsonRPC])
	b.startTrueAlone(c)
	floor, ours := samples[time.Duration]{}, samples[time.Duration]{}
	for range b.sizes.spawns {
		floor = append(floor, timed(b.forkExecWait))
		ours = append(ours, timed(func() { b.startTrueAlone(c) }))
	}
	b.rawTimes("fork, exec, wait", floor)
	b.rawTimes("process/start to process/closed", ours)
	return []line{atMost("start → closed, JSON-RPC, p50", floor.median(), ours.median(), 1.6, showTime)}
}

// startTrueAlone is startTrue on a connection on which nothing else happens.
func (b *bench) startTrueAlone(c *benchRPC) {
	c.send(opText, fmt.Appendf(nil, `{"id":1,"method":"process/start","params":%s}`, startParams(processID(), `,"tty":false`, truth)))
	for _, part := range []string{`{"id":1,"result":{"processId":`, `"exitCode":0`, `"process/closed"`} {
		if m, err := c.next(); err != nil || !bytes.Contains(m, []byte(part)) {
			b.Fatalf("got %s in place of %s: %v", m, part, err)
		}
	}
}

func measureSpawnRateJSON(b *bench) []line {
	server := b.startSocketServer()
	c := b.dialRPC(server.urls[jsonRPC])
	var floor, ours samples[float64]
	before := server.cpu()
	for range b.sizes.rateRounds {
		floor = append(floor, spawnRate(b.sizes.rateSpawns, b.forkExecWait))
		ours = append(ours, spawnRate(b.sizes.rateSpawns, func() { b.startTrue(c) }))
	}
	spent := (server.cpu() - before) / time.Duration(b.sizes.rateRounds*b.sizes.rateSpawns)
	b.raw("fork, exec, wait %.0f; JSON-RPC %.0f /s; server CPU %v each", floor, ours, spent)
	return []line{atLeast(fmt.Sprintf("short processes, %d in flight, one connection, JSON-RPC", inFlight),
		floor.median(), ours.median(), 0.75, "/s")}
}

func measureOutputJSON(b *bench) []line {
	server, bare := b.startSocketServer(), b.startBareSocket()
	b.checkOutputJSON(server)
	pipe := b.pipeReadCost()
	c := b.dialRPCUnread(server.urls[jsonRPC])
	var floor, relay, ours transfers
	for range b.sizes.outputRounds {
		floor.add(b, bare, func() { b.receiveFrames(bare, "output") })
		relay.add(b, bare, func() { b.receiveFrames(bare, "relay") })
		ours.add(b, server, func() { b.receiveOutputJSON(c) })
	}
	b.raw("JSON-RPC, bare frames: %.0f MiB/s, server CPU %.2f s/GiB", floor.rate, floor.cpu)
	b.raw("JSON-RPC, bare frames of a process's output: %.0f MiB/s, server CPU %.2f s/GiB", relay.rate, relay.cpu)
	b.raw("JSON-RPC, process/output: %.0f MiB/s, server CPU %.2f s/GiB", ours.rate, ours.cpu)
	const limit = 0.8
	spent, floorCPU := ours.cpu.median(), pipe+floor.cpu.median()
	return []line{
		atLeast("output of one process to its owner, JSON-RPC", floor.rate.median(), ours.rate.median(), 0.8, "MiB/s"),
		atLeast("the same, beside bare frames of a process's output, JSON-RPC", relay.rate.median(), ours.rate.median(), 0.8, "MiB/s"),
		{
			what: "server CPU for it, JSON-RPC", ours: fmt.Sprintf("%.2f s/GiB", spent),
			floor: fmt.Sprintf("%.2f pipe + %.2f bare frames", pipe, floor.cpu.median()),
			ratio: fmt.Sprintf("%.2f ×", spent/floorCPU), budget: fmt.Sprintf("≤ %v s/GiB", limit), met: spent <= limit,
		},
	}
}

// receiveFrames receives a transfer of the floor and checks its size.
func (b *bench) receiveFrames(bare *benchPeer, way string) {
	b.Helper()
	s := b.dialSocket(fmt.Sprintf("%s/%s/%d", bare.urls[jsonRPC], way, b.sizes.outputBytes))
	var received int64
	var err error
	for err == nil {
		var m []byte
		if m, err = s.next(); err == nil {
			received += int64(chunkBytes(m))
		}
	}
	if !errors.Is(err, io.EOF) || received != b.sizes.outputBytes {
		b.Fatalf("the floor gave %d bytes of %d: %v", received, b.sizes.outputBytes, err)
	}
	_ = s.conn.Close()
}

// benchMessages carries messages of JSON-RPC.
type benchMessages interface {
	send(opcode byte, message []byte)
	// next returns the next message, until the next call.
	next() ([]byte, error)
}

// receiveOutputJSON runs a process and checks that its output is whole and its
// notifications are in order, without decoding them.
func (b *bench) receiveOutputJSON(c benchMessages) {
	b.Helper()
	id := processID()
	c.send(opText, fmt.Appendf(nil, `{"id":1,"method":"process/start","params":%s}`,
		startParams(id, `,"tty":false`, zeros(b.sizes.outputBytes)...)))
	var received int64
	for seq := uint64(1); ; {
		m, err := c.next()
		if err != nil {
			b.Fatal(err)
		}
		if bytes.HasPrefix(m, []byte(`{"id":1,"result"`)) {
			continue
		}
		if n := chunkBytes(m); n >= 0 {
			if !bytes.Contains(m[:min(len(m), 200)], fmt.Appendf(nil, `"seq":%d,`, seq)) {
				b.Fatalf("seq %d did not come: %.200s", seq, m)
			}
			seq, received = seq+1, received+int64(n)
			continue
		}
		if bytes.Contains(m, []byte(`"process/closed"`)) {
			break
		}
		if !bytes.Contains(m, []byte(`"exitCode":0`)) {
			b.Fatalf("got %s", m)
		}
	}
	if received != b.sizes.outputBytes {
		b.Fatalf("%d of %d bytes arrived", received, b.sizes.outputBytes)
	}
}

// checkOutputJSON shows once that what arrives is what was written.
func (b *bench) checkOutputJSON(server *benchPeer) {
	b.Helper()
	const size = 8<<20 + 17
	c := b.dialRPC(server.urls[jsonRPC])
	id := processID()
	events, end := c.follow(id)
	defer end()
	c.call("process/start", startParams(id, `,"tty":false`, testproc.Argv("flood", "-bytes", fmt.Sprint(size))...))
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

func measureTerminalJSON(b *bench) []line {
	c := b.dialRPCUnread(b.startSocketServer().urls[jsonRPC])
	bare := b.startBareSocket().urls[jsonRPC]
	echo, keys := b.dialSocket(bare+"/echo"), b.dialSocket(bare+"/keys")
	terminal := b.openTerminal()
	c.send(opText, fmt.Appendf(nil, `{"id":1,"method":"process/start","params":%s}`, startParams("p", `,"tty":true`, terminalChild...)))
	if m, err := c.next(); err != nil || !bytes.Contains(m, []byte(`"result"`)) {
		b.Fatalf("the start was answered %s: %v", m, err)
	}
	trip := func() {
		echo.send(opText, []byte("x"))
		if m, err := echo.next(); err != nil || string(m) != "x" {
			b.Fatalf("the floor echoed %q: %v", m, err)
		}
	}
	expect := func(s *benchSocket) {
		for _, part := range []string{`"accepted"`, `"chunk":"eA=="`} {
			if m, err := s.next(); err != nil || !bytes.Contains(m, []byte(part)) {
				b.Fatalf("got %s in place of %s: %v", m, part, err)
			}
		}
	}
	bareKey := func() {
		keys.send(opText, []byte("x"))
		expect(keys)
	}
	writes := 0
	key := func() {
		writes++
		c.send(opText, fmt.Appendf(nil, `{"id":1,"method":"process/write","params":{"processId":"p","chunk":"eA==","writeId":"%d"}}`, writes))
		expect(c.benchSocket)
	}
	var floor, trips, bareKeys, ours samples[time.Duration]
	for range b.sizes.echoes {
		floor = append(floor, timed(terminal))
		trips = append(trips, timed(trip))
		bareKeys = append(bareKeys, timed(bareKey))
		ours = append(ours, timed(key))
	}
	b.rawTimes("terminal in Go", floor)
	b.rawTimes("bare round trip", trips)
	b.rawTimes("terminal behind a bare socket", bareKeys)
	b.rawTimes("write → echo, JSON-RPC", ours)
	const extra = 30 * time.Microsecond
	limit := floor.median() + trips.median() + extra
	return []line{{
		what: "write → echo through a terminal, JSON-RPC, p50", ours: showTime(ours.median()),
		floor:  fmt.Sprintf("%s terminal + %s round trip", showTime(floor.median()), showTime(trips.median())),
		ratio:  "+ " + showTime(ours.median()-floor.median()-trips.median()),
		budget: fmt.Sprintf("floor + %s", showTime(extra)), met: ours.median() <= limit,
	}, {
		what: "the same, beside a terminal behind a bare socket, JSON-RPC", ours: showTime(ours.median()),
		floor: showTime(bareKeys.median()), ratio: "+ " + showTime(ours.median()-bareKeys.median()),
		budget: fmt.Sprintf("floor + %s", showTime(extra)), met: ours.median() <= bareKeys.median()+extra,
	}}
}

func measureSmallRequestJSON(b *bench) []line {
	c := b.dialRPC(b.startSocketServer().urls[jsonRPC])
	deaf := b.startStuck(c, false)
	alone := b.statTimes(c)
	b.stickJSON(c, deaf)
	beside := b.statTimes(c)
	var ends samples[time.Duration]
	for range b.sizes.terminations {
		id := b.startStuck(c, true)
		ends = append(ends, timed(func() {
			if got := c.call("process/terminate", fmt.Sprintf(`{"processId":%q}`, id)); string(got) != `{"running":true}` {
				b.Fatalf("terminate was answered %s", got)
			}
		}))
	}
	b.rawTimes("fs/getMetadata alone", alone)
	b.rawTimes("fs/getMetadata beside a long poll and a stuck write", beside)
	b.rawTimes("process/terminate beside them", ends)
	l := within("small request beside a long poll and a stuck write, JSON-RPC, p99", beside.quantile(0.99), 5*time.Millisecond, showTime)
	l.floor = showTime(alone.quantile(0.99)) + " alone"
	return []line{l, within("terminate beside them, JSON-RPC, p99", ends.quantile(0.99), 50*time.Millisecond, showTime)}
}

// startStuck starts a process that neither reads nor speaks.
func (b *bench) startStuck(c *benchRPC, stick bool) string {
	b.Helper()
	id := processID()
	c.call("process/start", startParams(id, `,"tty":false,"pipeStdin":true`, "/bin/sleep", "600"))
	if stick {
		b.stickJSON(c, id)
	}
	return id
}

// stickJSON makes a long poll of a process wait and writes to its stdin hang,
// on this connection.
func (b *bench) stickJSON(c *benchRPC, id string) {
	b.Helper()
	c.request("process/read", fmt.Sprintf(`{"processId":%q,"waitMs":600000}`, id))
	chunk := base64.StdEncoding.EncodeToString(make([]byte, 1<<20))
	var answers []<-chan rpcMessage
	for n := range 3 { // pipe and queue together hold less
		answers = append(answers, c.request("process/write", fmt.Sprintf(`{"processId":%q,"chunk":%q,"writeId":"%d"}`, id, chunk, n)))
	}
	if m := <-answers[0]; m.Result == nil {
		b.Fatalf("the first write was answered %s", m.Error)
	}
}

// statTimes times a small request.
func (b *bench) statTimes(c *benchRPC) samples[time.Duration] {
	b.Helper()
	var times samples[time.Duration]
	for range b.sizes.requests {
		times = append(times, timed(func() {
			if got := c.call("fs/getMetadata", `{"path":"/"}`); !strings.Contains(string(got), `"isDirectory":true`) {
				b.Fatalf("got %s", got)
			}
		}))
	}
	return times
}

func measureIdleJSON(b *bench) []line {
	server := b.startSocketServer()
	b.startTrue(b.dialRPC(server.urls[jsonRPC]))
	b.settle()
	before, descriptors := server.resident(), server.descriptors()
	for range b.sizes.connections {
		b.dialRPC(server.urls[jsonRPC])
	}
	b.settle()
	after, opened := server.resident(), server.descriptors()-descriptors
	spent := server.cpu()
	time.Sleep(b.sizes.idle)
	spent = server.cpu() - spent
	b.raw("%d connections with a session each: %s before, %s after, %d descriptors", b.sizes.connections, showMiB(before), showMiB(after), opened)
	return []line{
		within("memory per idle connection, JSON-RPC", (after-before)/int64(b.sizes.connections), 60<<10, showKiB),
		within(fmt.Sprintf("CPU in %v with %d idle connections, JSON-RPC", b.sizes.idle, b.sizes.connections+1), spent, 0, showTime),
	}
}

// measureStalledJSON measures what a server keeps for a client that stops
// reading, and that nothing is lost when it goes on.
func measureStalledJSON(b *bench) []line {
	const retention = 1 << 20 // the default
	server := b.startSocketServer()
	b.startTrue(b.dialRPC(server.urls[jsonRPC]))
	c := b.dialRPCUnread(server.urls[jsonRPC])
	b.settle()
	before := server.resident()
	c.send(opText, fmt.Appendf(nil, `{"id":1,"method":"process/start","params":%s}`,
		startParams("p", `,"tty":false`, zeros(b.sizes.stalledBytes)...)))
	if _, err := c.next(); err != nil {
		b.Fatal(err)
	}
	peak := before
	for deadline := time.Now().Add(b.sizes.idle); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		peak = max(peak, server.resident())
	}
	var received, last int64
	for {
		m, err := c.next()
		if err != nil {
			b.Fatal(err)
		}
		if n := chunkBytes(m); n >= 0 {
			received += int64(n)
			continue
		}
		var end rpcMessage
		if err := json.Unmarshal(m, &end); err != nil {
			b.Fatal(err)
		}
		if end.Method == "process/closed" {
			last = int64(end.Params.Seq)
			break
		}
	}
	if received != b.sizes.stalledBytes {
		b.Errorf("%d of %d bytes arrived in %d events", received, b.sizes.stalledBytes, last)
	}
	b.raw("stalled client: %s before, %s at most while it stalls, %s after it took all", showMiB(before), showMiB(peak), showMiB(server.resident()))
	return []line{within(fmt.Sprintf("memory for a client that stops reading %s, nothing lost, JSON-RPC", showMiB(b.sizes.stalledBytes)),
		peak-before, retention+2<<20, showMiB)}
}
