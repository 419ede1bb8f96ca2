package conformance

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/execwire/execwire/integration/harness"
	"golang.org/x/sys/unix"
)

// listenDiffers has listen URLs that are not compared, with the reason.
var listenDiffers = map[string]string{
	"ws://0.0.0.0:0":     "nobody listens beyond loopback without authentication",
	"ws://localhost:0":   "names are fine",
	"unix:///tmp/x.sock": "it opens a listener for gRPC",
	"wss://127.0.0.1:0":  "there is TLS, but it wants a certificate",
	"off":                "off is a setting of ours",
	"(absent)":           "the default is fixed ports, which tests leave alone",
	"":                   "as if absent",
	"ws://127.0.0.1:1":   "a port that others may have",
	"stdio":              "TestStdio_MatchesTheReference has it",
	"stdio://":           "TestStdio_MatchesTheReference has it",
}

// --listen accepts and rejects the same URLs as the reference, except for what it lacks; a
// rejection is one line and a failure.
func TestListenURLs_MatchTheReference(t *testing.T) {
	one := 1
	compared := 0
	for _, e := range readTranscript(t, newVersion, "10_listen_urls") {
		url, ok := strings.CutPrefix(note(e), "--listen ")
		if _, differs := listenDiffers[url]; !ok || differs {
			continue
		}
		var note struct {
			ExitCode *int `json:"exit_code"`
			Stdout   string
		}
		if err := json.Unmarshal(e.Value, &note); err != nil {
			t.Fatal(err)
		}
		s := startServer(t, "--listen", url)
		s.expect(note.ExitCode)
		if note.ExitCode == nil && !strings.HasPrefix(url, "ws://"+strings.TrimSuffix(s.address, portOf(s.address))) {
			t.Errorf("listening on %s, the server prints %s", url, s.address)
		}
		s.stop()
		compared++
	}
	if compared < 6 {
		t.Errorf("%d URLs were compared", compared)
	}
	for _, url := range []string{"ws://0.0.0.0:0", "wss://127.0.0.1:0"} {
		startServer(t, "--listen", url).expect(&one)
	}
	there := startWebsocketServer(t)
	startServer(t, "--listen", "ws://"+there.address).expect(&one) // in use
	there.stop()
}

func portOf(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// SIGTERM and SIGINT end the server with 0, and its processes after the grace period.
// Connections are closed.
func TestSignal_EndsTheServerAndItsProcesses(t *testing.T) {
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			server := startWebsocketServer(t)
			c := harness.WebsocketClient(t, server.address).Initialize("")
			c.Start("p", harness.Shell("echo $$; exec sleep 1000"), nil)
			c.Until("the process says who it is", func(frames []harness.RPCFrame) bool { return harness.OutputOf(frames, "p", "stdout") != "" })
			var pid int32
			if _, err := fmt.Sscan(harness.OutputOf(c.Record(), "p", "stdout"), &pid); err != nil {
				t.Fatal(err)
			}
			server.Send(t, signal)
			if code := server.Await(t); code != 0 {
				t.Errorf("the server exited with %d: %s", code, server.Errors.String())
			}
			c.AwaitEnd()
			c.AwaitDeath(pid)
		})
	}
}

// Stdio behaves like a websocket, with one message per line.
func TestStdio_MatchesTheReference(t *testing.T) {
	for _, url := range []string{"stdio", "stdio://"} {
		t.Run(url, func(t *testing.T) {
			server, c := harness.StdioClientAt(t, url)
			c.Initialize("")
			c.Start("p", harness.Shell("echo hi; exit 3"), nil)
			c.ExpectEnd("p", 3)
			for _, line := range []string{"not json", "", "   ", "[]", `{"id":4,"method":"process/read",`} {
				c.Send(line)
			}
			c.Send(`{"jsonrpc":"2.0","id":1003,"method":"process/read","params":{"processId":"p"}}`)
			c.Send(`{"id":1005,"method":"process/read","params":{"processId":"zz"}}` + "\r")
			c.Send(`{"method":"no/such"}`)
			var read harness.RPCRead
			c.Decode("process/read", c.Reply(1003), &read)
			if len(read.Chunks) != 1 || read.NextSeq != 4 || !read.Closed || *read.ExitCode != 3 {
				t.Errorf("process/read returns %+v", read)
			}
			if answer := c.Reply(1005); answer.Error == nil || answer.Error.Code != -32600 {
				t.Errorf("reading an unknown process returns %+v", answer)
			}
			c.Until("four lines are refused", func(frames []harness.RPCFrame) bool { return harness.CountReplies(frames, "-1") == 4 })
			for _, frame := range c.Record() {
				if string(frame.ID) == "-1" && (frame.Error == nil || frame.Error.Code != -32600) {
					t.Errorf("a refusal is %s", frame.Data)
				}
			}
			c.Start("q", harness.Shell("echo $$; exec sleep 1000"), nil)
			c.Until("the process says who it is", func(frames []harness.RPCFrame) bool { return harness.OutputOf(frames, "q", "stdout") != "" })
			var pid int32
			if _, err := fmt.Sscan(harness.OutputOf(c.Record(), "q", "stdout"), &pid); err != nil {
				t.Fatal(err)
			}
			link := c.Conn.(*harness.StdioConn)
			if _, err := link.Stdin.Write([]byte(`{"id":1007,"method":"process/read","params":{"processId":"no newline"}}`)); err != nil {
				t.Fatal(err)
			}
			if err := link.EndInput(); err != nil {
				t.Fatal(err)
			}
			c.AwaitEnd()
			if harness.ReplyTo(c.Record(), 1007) < 0 {
				t.Errorf("the last line was not answered; the server sent:\n%s", c.LastFrames())
			}
			if code := server.Await(t); code != 0 {
				t.Errorf("the server exited with %d", code)
			}
			c.AwaitDeath(pid)
		})
	}
}
