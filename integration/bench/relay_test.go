package bench

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/relay"
	relayharness "github.com/execwire/execwire/relay/harness"
)

// relayed carries messages of JSON-RPC through a hub.
type relayed struct {
	b      *bench
	stream *relay.Stream
}

func (r *relayed) Send(_ byte, message []byte) {
	if err := r.stream.Send(r.b.ctx, message); err != nil {
		r.b.Errorf("failed to send through the relay: %v", err)
	}
}

func (r *relayed) Next() ([]byte, error) { return r.stream.Receive(r.b.ctx) }

// startExecutor runs a hub and a server that is behind it, and has transports besides.
func (b *bench) startExecutor() *harness.Peer {
	b.Helper()
	binary, err := harness.HubCommand()
	if err != nil {
		b.Fatal(err)
	}
	hub := harness.StartPeer(b, nil, binary, "--listen", "http://127.0.0.1:0", "--log-level", "warn").URLs[harness.ThroughHub]
	server := harness.StartPeer(b, []string{"EXECWIRE_SHUTDOWN_GRACE_PERIOD=0s"}, harness.Execwire, "serve", "--log-level", "warn",
		"--listen", "grpc://127.0.0.1:0", "--listen", "ws://127.0.0.1:0", "--remote", hub, "--executor-id", harness.ExecutorID)
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
	if server.URLs[harness.ThroughHub], err = client.RelayURL(hub, harness.ExecutorID); err != nil {
		b.Fatal(err)
	}
	return server
}

// dialRelayed is harness.DialRPCUnread through the hub.
func (b *bench) dialRelayed(server *harness.Peer) *relayed {
	b.Helper()
	h, err := relayharness.Dial(b.ctx, relayharness.Options{URL: strings.TrimPrefix(server.URLs[harness.ThroughHub], "relay+")})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = h.Close() })
	stream, err := h.Open(b.ctx)
	if err != nil {
		b.Fatal(err)
	}
	c := &relayed{b: b, stream: stream}
	c.Send(harness.OpText, []byte(`{"id":0,"method":"initialize","params":{"clientName":"bench"}}`))
	if answer, err := c.Next(); err != nil || !bytes.Contains(answer, []byte(`"sessionId"`)) {
		b.Fatalf("initialize was answered %q: %v", answer, err)
	}
	c.Send(harness.OpText, []byte(`{"method":"initialized"}`))
	return c
}

// measureRelay compares what goes through a hub with what goes to the same server
// directly: two websockets, and a process more, in place of one.
func measureRelay(b *bench) []line {
	server := b.startExecutor()
	direct, relayed := harness.DialRPCUnread(b, server.URLs[harness.JSONRPC]), b.dialRelayed(server)
	directTimes, relayedTimes := b.askTimes(direct), b.askTimes(relayed)
	b.rawTimes("fs/getMetadata, websocket", directTimes)
	b.rawTimes("fs/getMetadata, through the hub", relayedTimes)
	c, far := b.dial(server, "TCP"), b.dial(server, harness.ThroughHub)
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
		withoutBudget(atMost("small request through a hub, JSON-RPC, beside the websocket, p50", directTimes.Median(), relayedTimes.Median(), 1, harness.ShowTime)),
		withoutBudget(atMost("the same, gRPC, beside TCP, p50", alone.Median(), away.Median(), 1, harness.ShowTime)),
		withoutBudget(atLeast("output through a hub, JSON-RPC, beside the websocket", directJSON.rate.Median(), relayedJSON.rate.Median(), 1, "MiB/s")),
		withoutBudget(atLeast("the same, gRPC, beside TCP", directGRPC.rate.Median(), relayedGRPC.rate.Median(), 1, "MiB/s")),
	}
}

// askTimes times a small request.
func (b *bench) askTimes(c benchMessages) harness.Samples[time.Duration] {
	b.Helper()
	var times harness.Samples[time.Duration]
	for range b.sizes.requests {
		times = append(times, harness.Timed(func() {
			c.Send(harness.OpText, []byte(`{"id":1,"method":"fs/getMetadata","params":{"path":"/"}}`))
			if answer, err := c.Next(); err != nil || !bytes.Contains(answer, []byte(`"isDirectory":true`)) {
				b.Fatalf("got %s, %v", answer, err)
			}
		}))
	}
	return times
}
