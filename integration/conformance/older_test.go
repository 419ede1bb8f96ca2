package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testproc"
)

// The example session of the README of the protocol's first version, over
// standard streams and against a real terminal. What differs from it, and why:
//
//   - the result of initialize has more members; clients ignore them
//   - a terminal echoes what is written, and turns "\n" into "\r\n": "ready\r\n",
//     then "hello\r\necho:hello\r\n" in one or more chunks
//   - command/exec/outputDelta has a seq, by which a client goes on after a resume
//   - command/exec/exited of a process that was killed has the exit code 137, not 0
//   - HOME is set, so that the login shell reads no profile of the user who runs this
func TestOlderDialect_ExampleSession(t *testing.T) {
	server, c := harness.StdioClient(t)
	c.Send(`{"id":1,"method":"initialize","params":{"clientName":"example-client"}}`)
	var hello struct{ ProtocolVersion string }
	c.Decode("initialize", c.Reply(1), &hello)
	if hello.ProtocolVersion != "exec-server.v0" {
		t.Errorf("the protocol's version is %q", hello.ProtocolVersion)
	}
	c.Send(`{"method":"initialized","params":{}}`)

	c.Send(strings.Replace(`{"id":2,"method":"command/exec","params":{"processId":"proc-1","argv":["bash","-lc","printf 'ready\\n'; while IFS= read -r line; do printf 'echo:%s\\n' \"$line\"; done"],"cwd":"/tmp","env":{"PATH":"/usr/bin:/bin"},"tty":true,"outputBytesCap":4096,"arg0":null}}`,
		`"env":{`, `"env":{"HOME":"`+harness.ShortDir(t)+`",`, 1))
	expectResult(c, 2, `{"processId":"proc-1","running":true,"exitCode":null,"stdout":null,"stderr":null}`)
	c.AwaitOutput("proc-1", "stdout", "ready\r\n")

	c.Send(`{"id":3,"method":"command/exec/write","params":{"processId":"proc-1","chunk":"aGVsbG8K"}}`)
	expectResult(c, 3, `{"accepted":true}`)
	c.AwaitOutput("proc-1", "stdout", "ready\r\nhello\r\necho:hello\r\n")

	c.Send(`{"id":4,"method":"command/exec/terminate","params":{"processId":"proc-1"}}`)
	expectResult(c, 4, `{"running":true}`)
	if exited := c.AwaitEvent("command/exec/exited", "proc-1"); exited.ExitCode != 128+9 {
		t.Errorf("it exited with %d", exited.ExitCode)
	}

	var order []string
	for _, f := range c.Record() {
		what := f.Method
		if what == "" {
			what = string(f.ID)
		}
		if what != "command/exec/outputDelta" || order[len(order)-1] != what {
			order = append(order, what)
		}
	}
	want := []string{"1", "2", "command/exec/outputDelta", "3", "command/exec/outputDelta", "4", "command/exec/exited"}
	if !slices.Equal(order, want) {
		t.Errorf("the server wrote %q, want %q", order, want)
	}

	// "If the stdio connection closes, the server terminates any remaining managed
	// processes before exiting."
	c.Result("command/exec", harness.StartOf("proc-2", harness.Shell("echo $$; exec sleep 1000"), nil), nil)
	c.Until("the process says who it is", func(frames []harness.RPCFrame) bool { return harness.OutputOf(frames, "proc-2", "stdout") != "" })
	var pid int32
	if _, err := fmt.Sscan(harness.OutputOf(c.Record(), "proc-2", "stdout"), &pid); err != nil {
		t.Fatal(err)
	}
	if err := c.Conn.(*harness.StdioConn).EndInput(); err != nil {
		t.Fatal(err)
	}
	c.AwaitEnd()
	if code := server.Await(t); code != 0 {
		t.Errorf("the server exited with %d", code)
	}
	c.AwaitDeath(pid)
}

// The server behaves as testdata/command_exec documents, over both transports.
func TestOlderDialect_Transcripts(t *testing.T) {
	files, err := filepath.Glob("testdata/command_exec/*.txt")
	if err != nil || len(files) < 3 {
		t.Fatalf("there are the conversations %q, %v", files, err)
	}
	address := harness.NewServer(t, nil).Address(harness.WebsocketTransport)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		converse := func(c *harness.RPCClient) {
			next := 0
			for line := range strings.Lines(string(text)) {
				line = strings.TrimSuffix(line, "\n")
				if said, ok := strings.CutPrefix(line, "> "); ok {
					c.Send(said)
				} else if want, ok := strings.CutPrefix(line, "< "); ok {
					next = expectExample(c, next, want)
				}
			}
			if next == 0 {
				c.Errorf("%s has no messages", file)
			}
		}
		t.Run(filepath.Base(file)+" over a websocket", func(t *testing.T) { converse(harness.WebsocketClient(t, address)) })
		t.Run(filepath.Base(file)+" over standard streams", func(t *testing.T) {
			_, c := harness.StdioClient(t)
			converse(c)
		})
	}
}

// A client that reads late receives megabytes of both streams completely, over both transports,
// also with little retention.
func TestOlderDialect_Output_IsComplete(t *testing.T) {
	size := uint64(4 << 20)
	if testing.Short() {
		size = 1 << 20
	}
	address := harness.NewServer(t, func(cfg *config.Config) { cfg.RetainedOutput = 256 << 10 }).Address(harness.WebsocketTransport)
	transports := map[string]func() *harness.RPCClient{
		"websocket": func() *harness.RPCClient { return harness.WebsocketClient(t, address) },
		"stdio": func() *harness.RPCClient {
			_, c := harness.StdioClient(t)
			return c
		},
	}
	for transport, connect := range transports {
		for name, more := range map[string]harness.RPCParams{"all is kept": nil, "little is kept": {"outputBytesCap": 1}} {
			t.Run(transport+", "+name, func(t *testing.T) {
				c := connect().Initialize("")
				c.Stall()
				begun := filepath.Join(harness.ShortDir(t), "begun")
				flood := harness.Program("flood", "-bytes", fmt.Sprint(size), "-stderr", fmt.Sprint(size))
				ask := c.Post("command/exec", harness.StartOf("p", append([]string{"/bin/sh", "-c", `: > "$0"; exec "$@"`, begun}, flood...), more))
				harness.Eventually(t, "the process writes", func() bool {
					_, err := os.Stat(begun)
					return err == nil
				})
				c.Proceed()
				c.Decode("command/exec", c.Reply(ask), nil)
				exited := c.AwaitEvent("command/exec/exited", "p")
				verify := map[string]*testproc.Verifier{"stdout": testproc.StdoutPattern.NewVerifier(), "stderr": testproc.StderrPattern.NewVerifier()}
				for _, e := range harness.EventsOf(c.Record(), "p") {
					if e.Method != "command/exec/outputDelta" {
						continue
					}
					if _, err := verify[e.Stream].Write(e.Chunk); err != nil {
						t.Fatalf("%s: %v", e.Stream, err)
					}
				}
				for stream, v := range verify {
					if v.Offset() != size {
						t.Errorf("%s: received %d bytes of %d", stream, v.Offset(), size)
					}
				}
				if exited.ExitCode != 0 {
					t.Errorf("it exited with %d", exited.ExitCode)
				}
			})
		}
	}
}

// A process continues in its dialect when its client has resumed. The client reads what it
// missed by sequence numbers.
func TestOlderDialect_Cut_LosesNothing(t *testing.T) {
	address := harness.NewServer(t, nil).Address(harness.WebsocketTransport)
	c := harness.WebsocketClient(t, address).Initialize("")
	missed := filepath.Join(harness.ShortDir(t), "missed")
	script := `echo one; while ! test -e "$0"; do sleep 0.01; done; echo two; read line; echo "$line"; exit 5`
	c.Result("command/exec", harness.StartOf("p", []string{"/bin/sh", "-c", script, missed}, harness.RPCParams{"tty": true}), nil)
	c.AwaitOutput("p", "stdout", "one\r\n")
	told := harness.EventsOf(c.Record(), "p")
	c.Drop()
	if err := os.WriteFile(missed, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	again := harness.WebsocketClient(t, address).Initialize(c.Session)
	said, after := "", told[len(told)-1].Seq
	for said != "two\r\n" {
		read := again.ReadProcess("p", harness.RPCParams{"afterSeq": after, "waitMs": 60_000})
		for _, chunk := range read.Chunks {
			said += string(chunk.Chunk)
		}
		if after = read.NextSeq - 1; !strings.HasPrefix("two\r\n", said) {
			t.Fatalf("process/read returns %q", said)
		}
	}
	again.Result("command/exec/write", harness.WriteOf("p", "three\n"), nil)
	exited := again.AwaitEvent("command/exec/exited", "p")
	rest := ""
	for _, e := range harness.EventsOf(again.Record(), "p") {
		if e.Seq > after {
			rest += string(e.Chunk)
		}
	}
	if rest != "three\r\nthree\r\n" || exited.ExitCode != 5 {
		t.Errorf("it went on with %q and exited with %d", rest, exited.ExitCode)
	}
}
