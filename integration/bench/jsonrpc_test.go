package bench

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

// The rows of the JSON-RPC gateway, over a websocket.

// startBareSocket runs the floor.
func (b *bench) startBareSocket() *harness.Peer {
	b.Helper()
	argv := testproc.Argv("bench-bare-socket")
	return harness.StartPeer(b, nil, argv[0], argv[1:]...)
}

func measureSpawnJSON(b *bench) []line {
	c := harness.DialRPCUnread(b, harness.StartSocketServer(b).URLs[harness.JSONRPC])
	b.startTrueAlone(c)
	floor, ours := harness.Samples[time.Duration]{}, harness.Samples[time.Duration]{}
	for range b.sizes.spawns {
		floor = append(floor, harness.Timed(b.forkExecWait))
		ours = append(ours, harness.Timed(func() { b.startTrueAlone(c) }))
	}
	b.rawTimes("fork, exec, wait", floor)
	b.rawTimes("process/start to process/closed", ours)
	return []line{atMost("start → closed, JSON-RPC, p50", floor.Median(), ours.Median(), 1.6, harness.ShowTime)}
}

// startTrueAlone is StartTrue on an otherwise idle connection.
func (b *bench) startTrueAlone(c *harness.RawRPC) {
	c.Send(harness.OpText, fmt.Appendf(nil, `{"id":1,"method":"process/start","params":%s}`, harness.StartParams(harness.ProcessID(), `,"tty":false`, harness.TrueCommand)))
	for _, part := range []string{`{"id":1,"result":{"processId":`, `"exitCode":0`, `"process/closed"`} {
		if m, err := c.Next(); err != nil || !bytes.Contains(m, []byte(part)) {
			b.Fatalf("got %s in place of %s: %v", m, part, err)
		}
	}
}

func measureSpawnRateJSON(b *bench) []line {
	server := harness.StartSocketServer(b)
	c := harness.DialRPC(b, server.URLs[harness.JSONRPC])
	var floor, ours harness.Samples[float64]
	before := server.CPU()
	for range b.sizes.rateRounds {
		floor = append(floor, spawnRate(b.sizes.rateSpawns, b.forkExecWait))
		ours = append(ours, spawnRate(b.sizes.rateSpawns, func() { harness.StartTrue(b, c) }))
	}
	spent := (server.CPU() - before) / time.Duration(b.sizes.rateRounds*b.sizes.rateSpawns)
	b.raw("fork, exec, wait %.0f; JSON-RPC %.0f /s; server CPU %v each", floor, ours, spent)
	return []line{atLeast(fmt.Sprintf("short processes, %d in flight, one connection, JSON-RPC", inFlight),
		floor.Median(), ours.Median(), 0.75, "/s")}
}

func measureOutputJSON(b *bench) []line {
	server, bare := harness.StartSocketServer(b), b.startBareSocket()
	b.checkOutputJSON(server)
	pipe := b.pipeReadCost()
	c := harness.DialRPCUnread(b, server.URLs[harness.JSONRPC])
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
	spent, floorCPU := ours.cpu.Median(), pipe+floor.cpu.Median()
	return []line{
		atLeast("output of one process to its owner, JSON-RPC", floor.rate.Median(), ours.rate.Median(), 0.8, "MiB/s"),
		atLeast("the same, beside bare frames of a process's output, JSON-RPC", relay.rate.Median(), ours.rate.Median(), 0.8, "MiB/s"),
		{
			what: "server CPU for it, JSON-RPC", ours: fmt.Sprintf("%.2f s/GiB", spent),
			floor: fmt.Sprintf("%.2f pipe + %.2f bare frames", pipe, floor.cpu.Median()),
			ratio: fmt.Sprintf("%.2f ×", spent/floorCPU), budget: fmt.Sprintf("≤ %v s/GiB", limit), met: spent <= limit,
		},
	}
}

// receiveFrames receives a transfer of the floor and checks its size.
func (b *bench) receiveFrames(bare *harness.Peer, way string) {
	b.Helper()
	s := harness.DialSocket(b, fmt.Sprintf("%s/%s/%d", bare.URLs[harness.JSONRPC], way, b.sizes.outputBytes))
	var received int64
	var err error
	for err == nil {
		var m []byte
		if m, err = s.Next(); err == nil {
			received += int64(chunkBytes(m))
		}
	}
	if !errors.Is(err, io.EOF) || received != b.sizes.outputBytes {
		b.Fatalf("the floor gave %d bytes of %d: %v", received, b.sizes.outputBytes, err)
	}
	_ = s.Conn.Close()
}

// benchMessages carries messages of JSON-RPC.
type benchMessages interface {
	Send(opcode byte, message []byte)
	// next returns the next message, until the next call.
	Next() ([]byte, error)
}

// receiveOutputJSON runs a process and checks that its output is complete and its
// notifications are in order, without decoding them.
func (b *bench) receiveOutputJSON(c benchMessages) {
	b.Helper()
	id := harness.ProcessID()
	c.Send(harness.OpText, fmt.Appendf(nil, `{"id":1,"method":"process/start","params":%s}`,
		harness.StartParams(id, `,"tty":false`, zeros(b.sizes.outputBytes)...)))
	var received int64
	for seq := uint64(1); ; {
		m, err := c.Next()
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

func measureTerminalJSON(b *bench) []line {
	c := harness.DialRPCUnread(b, harness.StartSocketServer(b).URLs[harness.JSONRPC])
	bare := b.startBareSocket().URLs[harness.JSONRPC]
	echo, keys := harness.DialSocket(b, bare+"/echo"), harness.DialSocket(b, bare+"/keys")
	terminal := b.openTerminal()
	c.Send(harness.OpText, fmt.Appendf(nil, `{"id":1,"method":"process/start","params":%s}`, harness.StartParams("p", `,"tty":true`, terminalChild...)))
	if m, err := c.Next(); err != nil || !bytes.Contains(m, []byte(`"result"`)) {
		b.Fatalf("the start was answered %s: %v", m, err)
	}
	trip := func() {
		echo.Send(harness.OpText, []byte("x"))
		if m, err := echo.Next(); err != nil || string(m) != "x" {
			b.Fatalf("the floor echoed %q: %v", m, err)
		}
	}
	expect := func(s *harness.RawSocket) {
		for _, part := range []string{`"accepted"`, `"chunk":"eA=="`} {
			if m, err := s.Next(); err != nil || !bytes.Contains(m, []byte(part)) {
				b.Fatalf("got %s in place of %s: %v", m, part, err)
			}
		}
	}
	bareKey := func() {
		keys.Send(harness.OpText, []byte("x"))
		expect(keys)
	}
	writes := 0
	key := func() {
		writes++
		c.Send(harness.OpText, fmt.Appendf(nil, `{"id":1,"method":"process/write","params":{"processId":"p","chunk":"eA==","writeId":"%d"}}`, writes))
		expect(c.RawSocket)
	}
	var floor, trips, bareKeys, ours harness.Samples[time.Duration]
	for range b.sizes.echoes {
		floor = append(floor, harness.Timed(terminal))
		trips = append(trips, harness.Timed(trip))
		bareKeys = append(bareKeys, harness.Timed(bareKey))
		ours = append(ours, harness.Timed(key))
	}
	b.rawTimes("terminal in Go", floor)
	b.rawTimes("bare round trip", trips)
	b.rawTimes("terminal behind a bare socket", bareKeys)
	b.rawTimes("write → echo, JSON-RPC", ours)
	const extra = 30 * time.Microsecond
	limit := floor.Median() + trips.Median() + extra
	return []line{{
		what: "write → echo through a terminal, JSON-RPC, p50", ours: harness.ShowTime(ours.Median()),
		floor:  fmt.Sprintf("%s terminal + %s round trip", harness.ShowTime(floor.Median()), harness.ShowTime(trips.Median())),
		ratio:  "+ " + harness.ShowTime(ours.Median()-floor.Median()-trips.Median()),
		budget: fmt.Sprintf("floor + %s", harness.ShowTime(extra)), met: ours.Median() <= limit,
	}, {
		what: "the same, beside a terminal behind a bare socket, JSON-RPC", ours: harness.ShowTime(ours.Median()),
		floor: harness.ShowTime(bareKeys.Median()), ratio: "+ " + harness.ShowTime(ours.Median()-bareKeys.Median()),
		budget: fmt.Sprintf("floor + %s", harness.ShowTime(extra)), met: ours.Median() <= bareKeys.Median()+extra,
	}}
}

func measureSmallRequestJSON(b *bench) []line {
	c := harness.DialRPC(b, harness.StartSocketServer(b).URLs[harness.JSONRPC])
	deaf := b.startStuck(c, false)
	alone := b.statTimes(c)
	b.stickJSON(c, deaf)
	beside := b.statTimes(c)
	var ends harness.Samples[time.Duration]
	for range b.sizes.terminations {
		id := b.startStuck(c, true)
		ends = append(ends, harness.Timed(func() {
			if got := c.Call("process/terminate", fmt.Sprintf(`{"processId":%q}`, id)); string(got) != `{"running":true}` {
				b.Fatalf("terminate was answered %s", got)
			}
		}))
	}
	b.rawTimes("fs/getMetadata alone", alone)
	b.rawTimes("fs/getMetadata beside a long poll and a stuck write", beside)
	b.rawTimes("process/terminate beside them", ends)
	l := within("small request beside a long poll and a stuck write, JSON-RPC, p99", beside.Quantile(0.99), 5*time.Millisecond, harness.ShowTime)
	l.floor = harness.ShowTime(alone.Quantile(0.99)) + " alone"
	return []line{l, within("terminate beside them, JSON-RPC, p99", ends.Quantile(0.99), 50*time.Millisecond, harness.ShowTime)}
}

// startStuck starts a process that neither reads nor writes.
func (b *bench) startStuck(c *harness.RawRPC, stick bool) string {
	b.Helper()
	id := harness.ProcessID()
	c.Call("process/start", harness.StartParams(id, `,"tty":false,"pipeStdin":true`, "/bin/sleep", "600"))
	if stick {
		b.stickJSON(c, id)
	}
	return id
}

// stickJSON starts a long poll of a process and a blocked write to its stdin on this
// connection.
func (b *bench) stickJSON(c *harness.RawRPC, id string) {
	b.Helper()
	c.Request("process/read", fmt.Sprintf(`{"processId":%q,"waitMs":600000}`, id))
	chunk := base64.StdEncoding.EncodeToString(make([]byte, 1<<20))
	var answers []<-chan harness.RPCMessage
	for n := range 3 { // pipe and queue together hold less
		answers = append(answers, c.Request("process/write", fmt.Sprintf(`{"processId":%q,"chunk":%q,"writeId":"%d"}`, id, chunk, n)))
	}
	if m := <-answers[0]; m.Result == nil {
		b.Fatalf("the first write was answered %s", m.Error)
	}
}

// statTimes times a small request.
func (b *bench) statTimes(c *harness.RawRPC) harness.Samples[time.Duration] {
	b.Helper()
	var times harness.Samples[time.Duration]
	for range b.sizes.requests {
		times = append(times, harness.Timed(func() {
			if got := c.Call("fs/getMetadata", `{"path":"/"}`); !strings.Contains(string(got), `"isDirectory":true`) {
				b.Fatalf("got %s", got)
			}
		}))
	}
	return times
}

func measureIdleJSON(b *bench) []line {
	server := harness.StartSocketServer(b)
	harness.StartTrue(b, harness.DialRPC(b, server.URLs[harness.JSONRPC]))
	b.settle()
	before, descriptors := server.Resident(), server.Descriptors()
	for range b.sizes.connections {
		harness.DialRPC(b, server.URLs[harness.JSONRPC])
	}
	b.settle()
	after, opened := server.Resident(), server.Descriptors()-descriptors
	spent := server.CPU()
	time.Sleep(b.sizes.idle)
	spent = server.CPU() - spent
	b.raw("%d connections with a session each: %s before, %s after, %d descriptors", b.sizes.connections, harness.ShowMiB(before), harness.ShowMiB(after), opened)
	return []line{
		within("memory per idle connection, JSON-RPC", (after-before)/int64(b.sizes.connections), 60<<10, showKiB),
		within(fmt.Sprintf("CPU in %v with %d idle connections, JSON-RPC", b.sizes.idle, b.sizes.connections+1), spent, 0, harness.ShowTime),
	}
}

// measureStalledJSON measures what a server retains for a client that stops reading, and that
// nothing is lost when it continues.
func measureStalledJSON(b *bench) []line {
	const retention = 1 << 20 // the default
	server := harness.StartSocketServer(b)
	harness.StartTrue(b, harness.DialRPC(b, server.URLs[harness.JSONRPC]))
	c := harness.DialRPCUnread(b, server.URLs[harness.JSONRPC])
	b.settle()
	before := server.Resident()
	c.Send(harness.OpText, fmt.Appendf(nil, `{"id":1,"method":"process/start","params":%s}`,
		harness.StartParams("p", `,"tty":false`, zeros(b.sizes.stalledBytes)...)))
	if _, err := c.Next(); err != nil {
		b.Fatal(err)
	}
	peak := before
	for deadline := time.Now().Add(b.sizes.idle); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		peak = max(peak, server.Resident())
	}
	var received, last int64
	for {
		m, err := c.Next()
		if err != nil {
			b.Fatal(err)
		}
		if n := chunkBytes(m); n >= 0 {
			received += int64(n)
			continue
		}
		var end harness.RPCMessage
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
	b.raw("stalled client: %s before, %s at most while it stalls, %s after it took all", harness.ShowMiB(before), harness.ShowMiB(peak), harness.ShowMiB(server.Resident()))
	return []line{within(fmt.Sprintf("memory for a client that stops reading %s, nothing lost, JSON-RPC", harness.ShowMiB(b.sizes.stalledBytes)),
		peak-before, retention+2<<20, harness.ShowMiB)}
}
