package relay

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/execwire/execwire/client"
	relayv1 "github.com/execwire/execwire/gen/go/codex/exec_server/relay/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay/executor"
)

// jsonrpcExecutor serves relay streams as an executor of the reference does: each
// message is a JSON-RPC message, and nothing is acknowledged. The messages go to a
// server that listens on a websocket.
type jsonrpcExecutor struct {
	server string // ws://HOST:PORT
	conns  map[string]*wsconn.Conn

	mu     sync.Mutex
	traced []string // guarded by mu; requests whose frame has the traceparent of the message
}

// noteTrace notes a request with a trace. The first frame carries what the message does.
func (e *jsonrpcExecutor) noteTrace(frame *relayv1.RelayMessageFrame) {
	var request struct {
		Method string
		Trace  struct{ Traceparent, Tracestate string }
	}
	if json.Unmarshal(frame.GetData().GetPayload(), &request) != nil || frame.GetTraceparent() == "" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if request.Trace.Traceparent == frame.GetTraceparent() && request.Trace.Tracestate == frame.GetTracestate() {
		e.traced = append(e.traced, request.Method+" "+frame.GetTraceparent())
	}
}

// serve implements executor.Options.Serve.
func (e *jsonrpcExecutor) serve(ctx context.Context, websocket *wsconn.Conn) error {
	defer func() {
		for _, conn := range e.conns {
			_ = conn.Close(wsconn.CodeGoingAway, "")
		}
		_ = websocket.Close(wsconn.CodeNormal, "")
	}()
	stop := context.AfterFunc(ctx, func() { _ = websocket.Close(wsconn.CodeNormal, "") })
	defer stop()
	for {
		raw, err := websocket.Receive()
		if err != nil {
			return err
		}
		var frame relayv1.RelayMessageFrame
		if err := proto.Unmarshal(raw, &frame); err != nil {
			return err
		}
		id := frame.GetStreamId()
		switch {
		case frame.GetData() != nil && frame.GetData().GetSegmentCount() > 1:
			return errors.New("the executor got a segmented message, which the reference does not understand")
		case frame.GetData() != nil:
			conn, err := e.connect(ctx, websocket, id)
			if err != nil {
				return err
			}
			e.noteTrace(&frame)
			_ = conn.Send(frame.GetData().GetPayload()) // the stream is reset if it ended
		case frame.GetReset_() != nil && e.conns[id] != nil:
			_ = e.conns[id].Close(wsconn.CodeNormal, "")
			delete(e.conns, id)
		}
	}
}

// connect returns the connection to the server of a stream.
func (e *jsonrpcExecutor) connect(ctx context.Context, websocket *wsconn.Conn, id string) (*wsconn.Conn, error) {
	if conn := e.conns[id]; conn != nil {
		return conn, nil
	}
	conn, err := wsconn.Dial(ctx, e.server, wsconn.DialOptions{})
	if err != nil {
		return nil, err
	}
	e.conns[id] = conn
	go func() {
		for seq := uint32(0); ; seq++ {
			message, err := conn.Receive()
			if err != nil {
				return
			}
			data := &relayv1.RelayData{Seq: seq, SegmentCount: 1, Payload: message}
			raw, err := proto.Marshal(&relayv1.RelayMessageFrame{Version: 1, StreamId: id, Body: &relayv1.RelayMessageFrame_Data{Data: data}})
			if err != nil || websocket.Send(raw) != nil {
				return
			}
		}
	}()
	return conn, nil
}

// TestJSONRPCExecutor_BehindAHub_RunsCommands runs commands with the CLI and the SDK on an
// executor that speaks no gRPC.
func TestJSONRPCExecutor_BehindAHub_RunsCommands(t *testing.T) {
	server, hub := harness.Serve(t), harness.NewHub(t, nil)
	url := "http://" + harness.AddressOf(hub.URLs[harness.HubTransport])
	e := &jsonrpcExecutor{server: server.URLs[harness.WebsocketTransport], conns: map[string]*wsconn.Conn{}}
	ctx, stop := context.WithCancel(harness.Context(t))
	ended := make(chan error, 1)
	go func() {
		ended <- executor.Run(ctx, executor.Options{BaseURL: url, ExecutorID: harness.ExecutorID, Serve: e.serve})
	}()
	defer func() {
		stop()
		<-ended
	}()
	harness.Eventually(t, "the executor is connected", func() bool {
		list, err := client.Executors(ctx, url)
		return err == nil && len(list) == 1 && list[0].Connected
	})
	began := time.Now()
	ran := harness.Run(t, strings.NewReader("hello"), "run", "--hub", url, "--executor", harness.ExecutorID, "-i", "--", "/bin/sh", "-c", "tr a-z A-Z; echo apart >&2; exit 6")
	if ran.Code != 6 || ran.Stdout != "HELLO" || ran.Stderr != "apart\n" {
		t.Errorf("run: %+v", ran)
	}
	t.Logf("a run took %v", time.Since(began))
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	traced := harness.NewCommand("run", "--hub", url, "--executor", harness.ExecutorID, "--", "true")
	traced.Env = append(traced.Env, "TRACEPARENT="+parent, "TRACESTATE=a=1")
	if got := traced.Complete(t, nil); got.Code != 0 {
		t.Errorf("a traced run: %+v", got)
	}
	e.mu.Lock()
	if !slices.Contains(e.traced, "process/start "+parent) {
		t.Errorf("frames with a trace are those of %q", e.traced)
	}
	e.mu.Unlock()
	refused := harness.Run(t, nil, "run", "--hub", url, "--executor", harness.ExecutorID, "--detach", "--", "true")
	if refused.Code == 0 || !strings.Contains(refused.Stderr, "exec-server protocol") {
		t.Errorf("run --detach: %+v", refused)
	}

	address, err := client.RelayURL(url, harness.ExecutorID)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	file := t.TempDir() + "/file"
	if _, err := c.Upload(ctx, file, strings.NewReader("content"), client.UploadOptions{InPlace: true}); err != nil {
		t.Error(err)
	}
	if content, err := c.ReadFile(ctx, file); err != nil || string(content) != "content" {
		t.Errorf("%q, %v", content, err)
	}
}
