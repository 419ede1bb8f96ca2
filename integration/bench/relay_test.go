package bench

import (
	"bytes"
	"context"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

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

// The budgets of what goes through a hub, beside two websockets and a program between them
// that passes on their messages.
const (
	relayTimeRatio   = 1.5
	relayOutputRatio = 0.6
)

// measureRelay compares a hub with a bare hop: for JSON-RPC the messages of the floor, for gRPC
// its gRPC in the frames of the websockets.
func measureRelay(b *bench) []line {
	server, floor, hop := b.startExecutor(), b.startFloor(), b.startFloor()
	_, floorAddress, _ := strings.Cut(floor.URLs[harness.JSONRPC], "://")
	_, hopAddress, _ := strings.Cut(hop.URLs[harness.JSONRPC], "://")
	through := "hop/" + floorAddress + "/"
	echo, run := b.floorSocket(hop, through+"echo"), b.floorSocket(hop, through+"run")
	conn := b.channel(floor, append(tuned(), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		c, err := dialFloorConn(ctx, hopAddress+"/"+through+"grpc")
		if err != nil {
			return nil, err
		}
		return &frameStream{floorConn: c}, nil
	}))...)
	relayed, c := b.dialRelayed(server), b.dial(server, harness.ThroughHub)
	p := b.startDeaf(c)
	times := b.alternate(b.sizes.requests, 0.5,
		timed("message through a bare hop", func() {
			echo.Send(harness.OpText, []byte(statRequest))
			if m, err := echo.Next(); err != nil || string(m) != statRequest {
				b.Fatalf("the floor answered %q: %v", m, err)
			}
		}),
		timed("fs/getMetadata through the hub", func() {
			relayed.Send(harness.OpText, []byte(statRequest))
			if m, err := relayed.Next(); err != nil || !bytes.Contains(m, []byte(`"isDirectory":true`)) {
				b.Fatalf("got %s, %v", m, err)
			}
		}),
		timed("gRPC message through a bare hop", b.exchangeFloor(conn, "Echo")),
		timed("GetProcess through the hub", func() { b.get(c, p) }))
	n := b.sizes.outputBytes / 4
	got := b.carry(n,
		transfer{"output through a bare hop", floor, func() { b.runSocket(run, 1, n, zeros(n)...) }},
		transfer{"output through the hub, JSON-RPC", server, func() { b.receiveOutputJSON(relayed, 1, n, zeros(n)...) }},
		transfer{"output through a bare hop, gRPC", floor, func() { b.runFloor(conn, n, zeros(n)...) }},
		transfer{"output through the hub, gRPC", server, func() { b.receiveOutput(c, n) }})
	return []line{
		atMost("small request through a hub, JSON-RPC, p50", times[0], times[1], relayTimeRatio, showSeconds),
		atMost("small request through a hub, gRPC, p50", times[2], times[3], relayTimeRatio, showSeconds),
		atLeast("output through a hub, JSON-RPC", got[0].rate, got[1].rate, relayOutputRatio, showMiBRate),
		atLeast("output through a hub, gRPC", got[2].rate, got[3].rate, relayOutputRatio, showMiBRate),
	}
}

// statRequest is a small request.
const statRequest = `{"id":1,"method":"fs/getMetadata","params":{"path":"/"}}`
