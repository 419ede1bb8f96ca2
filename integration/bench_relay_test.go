package integration

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/relay"
	"github.com/execwire/execwire/relay/harness"
)

// throughHub is the transport of executors behind a hub.
const throughHub = "hub"

// relayed carries messages of JSON-RPC through a hub.
type relayed struct {
	b      *bench
	stream *relay.Stream
}

func (r *relayed) send(_ byte, message []byte) {
	if err := r.stream.Send(r.b.ctx, message); err != nil {
		r.b.Errorf("failed to send through the relay: %v", err)
	}
}

func (r *relayed) next() ([]byte, error) { return r.stream.Receive(r.b.ctx) }

// startExecutor runs a hub and a server that is behind it, and has doors besides.
func (b *bench) startExecutor() *benchPeer {
	b.Helper()
	binary, err := hubCommand()
	if err != nil {
		b.Fatal(err)
	}
	hub := b.startPeer(nil, binary, "--listen", "http://127.0.0.1:0", "--log-level", "warn").urls[throughHub]
	server := b.startPeer([]string{"EXECWIRE_SHUTDOWN_GRACE_PERIOD=0s"}, execwire, "serve", "--log-level", "warn",
		"--listen", "grpc://127.0.0.1:0", "--listen", "ws://127.0.0.1:0", "--remote", hub, "--executor-id", executorID)
	for {
		list, err := client.Executors(b.ctx, hub)
		if err != nil {
			b.Fatal(err)
		}
		if slices.ContainsFunc(list, func(e client.Executor) bool { return e.Connected }) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if server.urls[throughHub], err = client.RelayURL(hub, executorID); err != nil {
		b.Fatal(err)
	}
	return server
}

// dialRelayed is dialRPCUnread through the hub.
func (b *bench) dialRelayed(server *benchPeer) *relayed {
	b.Helper()
	h, err := harness.Dial(b.ctx, harness.Options{URL: strings.TrimPrefix(server.urls[throughHub], "relay+")})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = h.Close() })
	stream, err := h.Open(b.ctx)
	if err != nil {
		b.Fatal(err)
	}
	c := &relayed{b: b, stream: stream}
	c.send(opText, []byte(`{"id":0,"method":"initialize","params":{"clientName":"bench"}}`))
	if answer, err := c.next(); err != nil || !bytes.Contains(answer, []byte(`"sessionId"`)) {
		b.Fatalf("initialize was answered %q: %v", answer, err)
	}
	c.send(opText, []byte(`{"method":"initialized"}`))
	return c
}

// measureRelay compares what goes through a hub with what goes to the same server
// directly: two websockets, and a process more, in place of one.
func measureRelay(b *bench) []line {
	server := b.startExecutor()
	direct, relayed := b.dialRPCUnread(server.urls[jsonRPC]), b.dialRelayed(server)
	directTimes, relayedTimes := b.askTimes(direct), b.askTimes(relayed)
	b.rawTimes("fs/getMetadata, websocket", directTimes)
	b.rawTimes("fs/getMetadata, through the hub", relayedTimes)
	c, far := b.dial(server, "TCP"), b.dial(server, throughHub)
	p := b.startDeaf(c)
	// Of the principal of the relay, who has processes of its own.
	alone, away := b.getTimes(c, p), b.getTimes(far, b.startDeaf(far))
	b.rawTimes("GetProcess, TCP", alone)
	b.rawTimes("GetProcess, through the hub", away)

	less := *b
	less.sizes.outputBytes /= 4
	var directJSON, relayedJSON, directGRPC, relayedGRPC transfers
	for range min(b.sizes.outputRounds, 3) {
		directJSON.addBytes(server, less.sizes.outputBytes, func() { less.receiveOutputJSON(direct) })
		relayedJSON.addBytes(server, less.sizes.outputBytes, func() { less.receiveOutputJSON(relayed) })
		directGRPC.addBytes(server, less.sizes.outputBytes, func() { less.receiveOutput(c, less.sizes.outputBytes) })
		relayedGRPC.addBytes(server, less.sizes.outputBytes, func() { less.receiveOutput(far, less.sizes.outputBytes) })
	}
	b.raw("output, websocket: %.0f MiB/s, server CPU %.2f s/GiB; through the hub: %.0f MiB/s, %.2f s/GiB",
		directJSON.rate, directJSON.cpu, relayedJSON.rate, relayedJSON.cpu)
	b.raw("output, TCP: %.0f MiB/s, server CPU %.2f s/GiB; through the hub: %.0f MiB/s, %.2f s/GiB",
		directGRPC.rate, directGRPC.cpu, relayedGRPC.rate, relayedGRPC.cpu)
	return []line{
		withoutBudget(atMost("small request through a hub, JSON-RPC, beside the websocket, p50", directTimes.median(), relayedTimes.median(), 1, showTime)),
		withoutBudget(atMost("the same, gRPC, beside TCP, p50", alone.median(), away.median(), 1, showTime)),
		withoutBudget(atLeast("output through a hub, JSON-RPC, beside the websocket", directJSON.rate.median(), relayedJSON.rate.median(), 1, "MiB/s")),
		withoutBudget(atLeast("the same, gRPC, beside TCP", directGRPC.rate.median(), relayedGRPC.rate.median(), 1, "MiB/s")),
	}
}

// askTimes times a small request.
func (b *bench) askTimes(c benchMessages) samples[time.Duration] {
	b.Helper()
	var times samples[time.Duration]
	for range b.sizes.requests {
		times = append(times, timed(func() {
			c.send(opText, []byte(`{"id":1,"method":"fs/getMetadata","params":{"path":"/"}}`))
			if answer, err := c.next(); err != nil || !bytes.Contains(answer, []byte(`"isDirectory":true`)) {
				b.Fatalf("got %s, %v", answer, err)
			}
		}))
	}
	return times
}
