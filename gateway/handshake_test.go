package gateway

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/wsconn"
)

func TestInitialize_ReportsSessionAndEnvironment(t *testing.T) {
	cl := newTestServer(t).connect()
	var result struct {
		SessionID       string
		ProtocolVersion string
		EnvironmentInfo struct {
			Shell                                 struct{ Name, Path string }
			ExecutorVersion, ProviderID           string
			Cwd, UserHomeDir, TempDir             string
			PlatformOS                            string
			PrependPathDirs, TemporaryDirectories []string
			Capabilities                          map[string]bool
		}
	}
	raw := cl.must("initialize", map[string]any{"clientName": "", "resumeSessionId": nil, "later": 1})
	cl.decode(raw, &result)
	info := result.EnvironmentInfo
	switch {
	case len(result.SessionID) != 36, result.ProtocolVersion != "exec-server.v0":
		t.Errorf("%+v", result)
	case !strings.HasPrefix(info.Shell.Path, "/"), info.Shell.Name == "", info.ExecutorVersion != "test":
		t.Errorf("%+v", info)
	case !strings.HasPrefix(info.Cwd, "file:///"), !strings.HasPrefix(info.TempDir, "file:///"), info.PlatformOS != "linux":
		t.Errorf("%+v", info)
	case info.PrependPathDirs == nil, info.TemporaryDirectories == nil, !strings.HasPrefix(info.ProviderID, "sha256:"):
		t.Errorf("%+v", info)
	case len(info.Capabilities) != 15:
		t.Errorf("%d capabilities", len(info.Capabilities))
	}
	for name, has := range info.Capabilities {
		if has != (name == "fileWriteStreaming" || name == "fsWatchMissing") {
			t.Errorf("capability %s is %t", name, has)
		}
	}
	cl.notify("initialized", map[string]any{})
	var again struct{ EnvironmentInfo json.RawMessage }
	cl.decode(raw, &again)
	if got := cl.must("environment/info", nil); string(got) != string(again.EnvironmentInfo) {
		t.Errorf("environment/info returned %s, initialize %s", got, again.EnvironmentInfo)
	}
	if got := cl.must("environment/status", map[string]any{}); string(got) != `{"status":"ready"}` {
		t.Errorf("environment/status returned %s", got)
	}
}

func TestHandshake_OutOfOrder_Fails(t *testing.T) {
	cl := newTestServer(t).connect()
	read := map[string]any{"processId": "p"}
	cl.refused("process/read", read, -32600, "client must call initialize before using exec methods")
	cl.refused("environment/info", nil, -32600, "client must call initialize before using environment info methods")
	cl.refused("process/read", map[string]any{}, -32602, "missing field `processId`")
	cl.refused("no/such", nil, -32601, "exec-server stub does not implement `no/such` yet")
	cl.refused("", nil, -32601, "does not implement `` yet")
	cl.refused("Process/Read", nil, -32601, "does not implement")

	cl.refused("initialize", map[string]any{"clientName": 5}, -32602, "invalid type")
	cl.refused("initialize", nil, -32602, "expected struct InitializeParams")
	cl.refused("initialize", map[string]any{"clientName": "x", "resumeSessionId": "nope"}, -32600, "unknown session id nope")
	cl.refused("initialize", map[string]any{"clientName": "x", "resumeSessionId": ""}, -32600, "unknown session id ")
	cl.refused("initialize", map[string]any{"clientName": "x", "resumeSessionId": "default"}, -32600, "unknown session id default")
	cl.must("initialize", []any{"my-client"})
	cl.refused("process/read", read, -32600, "client must send initialized before using exec methods")
	cl.refused("initialize", map[string]any{"clientName": "x"}, -32600, "initialize may only be sent once per connection")

	cl.notify("initialized", "whatever")
	cl.notify("initialized", nil)
	cl.refused("process/read", read, -32600, "unknown process id p")
	cl.refused("initialize", map[string]any{"clientName": "x"}, -32600, "initialize may only be sent once per connection")
}

// The connection stays open.
func TestMalformedMessage_ErrorHasNoID(t *testing.T) {
	for text, want := range map[string]string{
		``:                                 "failed to parse websocket JSON-RPC message from exec-server websocket 127.0.0.1:4711: ",
		`not json`:                         "failed to parse websocket JSON-RPC message from ",
		`[]`:                               "failed to parse websocket JSON-RPC message from ",
		`{"id":1.5,"method":"initialize"}`: "failed to parse websocket JSON-RPC message from ",
		`{"method":"initialized"}`:         "client must call initialize first",
		`{"method":"process/output"}`:      "unexpected notification `process/output`",
		`{"method":"initialize","params":{"clientName":"x"}}`: "unexpected notification `initialize`",
		`{"id":7,"result":{}}`:                                "unexpected response with id 7",
		`{"id":"x","error":{"code":1,"message":"m"}}`:         "unexpected response with id \"x\"",
	} {
		t.Run(text, func(t *testing.T) {
			cl := newTestServer(t).connect()
			cl.send(text)
			f := cl.reply("-1")
			if f.Error == nil || f.Error.Code != -32600 || !strings.Contains(f.Error.Message, want) {
				t.Fatalf("the response is %s", f.raw)
			}
			cl.initialize("")
			cl.must("environment/status", nil)
		})
	}
}

func TestResponse_IDIsUnchanged(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	for _, id := range []string{`"x"`, `""`, `0`, `-1`, `9223372036854775807`, `"\u0000é"`} {
		cl.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"environment/status","later":[1]}`)
		want := id
		cl.wait("response to "+id, func(f frame) bool {
			var got, sent any
			return f.Result != nil && json.Unmarshal(f.ID, &got) == nil && json.Unmarshal([]byte(want), &sent) == nil && got == sent
		})
	}
}

func TestOversizedMessage_ErrorPrecedesClose(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	close(cl.pipe.oversized)
	f := cl.reply("-1")
	if f.Error == nil || !strings.Contains(f.Error.Message, "16777216") {
		t.Errorf("the response is %s", f.raw)
	}
	var tooLarge jsonrpc.TooLarge
	if err := cl.ended(); !errors.As(err, &tooLarge) || cl.pipe.code != 1009 {
		t.Errorf("Serve returned %v, and the connection was closed with %d", err, cl.pipe.code)
	}
}

func TestReceiveBudgetFull_ErrorPrecedesClose(t *testing.T) {
	srv := newTestServer(t)
	cl, session := srv.attach("", func(p *pipe, _ *Config) { p.refusal = &wsconn.BudgetError{Limit: 1 << 20} })
	close(cl.pipe.oversized)
	if f := cl.reply("-1"); f.Error == nil || f.Error.Code != -32005 || f.Error.Data["setting"] != "incoming_bytes_total" {
		t.Errorf("the response is %s", f.raw)
	}
	var full *wsconn.BudgetError
	if err := cl.ended(); !errors.As(err, &full) || cl.pipe.code != 1013 {
		t.Errorf("Serve returned %v, and the connection was closed with %d", err, cl.pipe.code)
	}
	if _, resumed := srv.attach(session); resumed != session {
		t.Errorf("the session %s is now %s", session, resumed)
	}
}

func TestNew_NegativeLimit_Fails(t *testing.T) {
	for _, config := range []Config{{Requests: -1}, {ControlRequests: -1}, {Incoming: -1}, {Outgoing: -1}} {
		_, err := New(config)
		var refused *ConfigError
		if !errors.As(err, &refused) || refused.Value != -1 || !strings.Contains(err.Error(), refused.Field) {
			t.Errorf("%+v: %v", config, err)
		}
	}
}
