package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
//   - HOME is set, so that the login shell reads no profile of whoever runs this
func TestTheExampleSessionOfTheOlderDialect(t *testing.T) {
	server, c := stdioClient(t)
	c.send(`{"id":1,"method":"initialize","params":{"clientName":"example-client"}}`)
	var hello struct{ ProtocolVersion string }
	c.decode("initialize", c.reply(1), &hello)
	if hello.ProtocolVersion != "exec-server.v0" {
		t.Errorf("the protocol's version is %q", hello.ProtocolVersion)
	}
	c.send(`{"method":"initialized","params":{}}`)

	c.send(strings.Replace(`{"id":2,"method":"command/exec","params":{"processId":"proc-1","argv":["bash","-lc","printf 'ready\\n'; while IFS= read -r line; do printf 'echo:%s\\n' \"$line\"; done"],"cwd":"/tmp","env":{"PATH":"/usr/bin:/bin"},"tty":true,"outputBytesCap":4096,"arg0":null}}`,
		`"env":{`, `"env":{"HOME":"`+shortDir(t)+`",`, 1))
	c.expectResult(2, `{"processId":"proc-1","running":true,"exitCode":null,"stdout":null,"stderr":null}`)
	c.awaitOutput("proc-1", "stdout", "ready\r\n")

	c.send(`{"id":3,"method":"command/exec/write","params":{"processId":"proc-1","chunk":"aGVsbG8K"}}`)
	c.expectResult(3, `{"accepted":true}`)
	c.awaitOutput("proc-1", "stdout", "ready\r\nhello\r\necho:hello\r\n")

	c.send(`{"id":4,"method":"command/exec/terminate","params":{"processId":"proc-1"}}`)
	c.expectResult(4, `{"running":true}`)
	if exited := c.awaitEvent("command/exec/exited", "proc-1"); exited.ExitCode != 128+9 {
		t.Errorf("it exited with %d", exited.ExitCode)
	}

	var order []string
	for _, f := range c.record() {
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
		t.Errorf("the server said %q, want %q", order, want)
	}

	// "If the stdio connection closes, the server terminates any remaining managed
	// processes before exiting."
	c.result("command/exec", startOf("proc-2", shell("echo $$; exec sleep 1000"), nil), nil)
	c.until("the process says who it is", func(frames []rpcFrame) bool { return outputOf(frames, "proc-2", "stdout") != "" })
	var pid int32
	if _, err := fmt.Sscan(outputOf(c.record(), "proc-2", "stdout"), &pid); err != nil {
		t.Fatal(err)
	}
	if err := c.link.(*stdioLink).endInput(); err != nil {
		t.Fatal(err)
	}
	c.awaitEnd()
	if code := server.await(t); code != 0 {
		t.Errorf("the server exited with %d", code)
	}
	c.awaitDeath(pid)
}

// What testdata/command_exec has is what a server does, at both doors.
func TestConversationsOfTheOlderDialect(t *testing.T) {
	files, err := filepath.Glob("testdata/command_exec/*.txt")
	if err != nil || len(files) < 3 {
		t.Fatalf("there are the conversations %q, %v", files, err)
	}
	address := newServer(t, nil).address(websocketDoor)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		converse := func(c *rpcClient) {
			next := 0
			for line := range strings.Lines(string(text)) {
				line = strings.TrimSuffix(line, "\n")
				if said, ok := strings.CutPrefix(line, "> "); ok {
					c.send(said)
				} else if want, ok := strings.CutPrefix(line, "< "); ok {
					next = c.expectExample(next, want)
				}
			}
			if next == 0 {
				c.Errorf("nothing is said in %s", file)
			}
		}
		t.Run(filepath.Base(file)+" over a websocket", func(t *testing.T) { converse(websocketClient(t, address)) })
		t.Run(filepath.Base(file)+" over standard streams", func(t *testing.T) {
			_, c := stdioClient(t)
			converse(c)
		})
	}
}

// Megabytes of both streams come whole to a client that reads late, at both doors,
// also where little is kept of them.
func TestTheOlderDialectLosesNothing(t *testing.T) {
	const size = 4 << 20
	address := newServer(t, func(cfg *config.Config) { cfg.RetainedOutput = 256 << 10 }).address(websocketDoor)
	doors := map[string]func() *rpcClient{
		"websocket": func() *rpcClient { return websocketClient(t, address) },
		"stdio": func() *rpcClient {
			_, c := stdioClient(t)
			return c
		},
	}
	for door, connect := range doors {
		for name, more := range map[string]rpcParams{"all is kept": nil, "little is kept": {"outputBytesCap": 1}} {
			t.Run(door+", "+name, func(t *testing.T) {
				c := connect().initialize("")
				c.stall()
				begun := filepath.Join(shortDir(t), "begun")
				flood := program("flood", "-bytes", fmt.Sprint(size), "-stderr", fmt.Sprint(size))
				ask := c.post("command/exec", startOf("p", append([]string{"/bin/sh", "-c", `: > "$0"; exec "$@"`, begun}, flood...), more))
				eventually(t, "the process writes", func() bool {
					_, err := os.Stat(begun)
					return err == nil
				})
				c.proceed()
				c.decode("command/exec", c.reply(ask), nil)
				exited := c.awaitEvent("command/exec/exited", "p")
				verify := map[string]*testproc.Verifier{"stdout": testproc.StdoutPattern.NewVerifier(), "stderr": testproc.StderrPattern.NewVerifier()}
				for _, e := range eventsOf(c.record(), "p") {
					if e.method != "command/exec/outputDelta" {
						continue
					}
					if _, err := verify[e.Stream].Write(e.Chunk); err != nil {
						t.Fatalf("%s: %v", e.Stream, err)
					}
				}
				for stream, v := range verify {
					if v.Offset() != size {
						t.Errorf("%s: %d bytes came of %d", stream, v.Offset(), size)
					}
				}
				if exited.ExitCode != 0 {
					t.Errorf("it exited with %d", exited.ExitCode)
				}
			})
		}
	}
}

// A process goes on in its dialect when its client has come back, which reads
// what it missed by the numbers of what it was told.
func TestTheOlderDialectOutlivesACut(t *testing.T) {
	address := newServer(t, nil).address(websocketDoor)
	c := websocketClient(t, address).initialize("")
	missed := filepath.Join(shortDir(t), "missed")
	script := `echo one; while ! test -e "$0"; do sleep 0.01; done; echo two; read line; echo "$line"; exit 5`
	c.result("command/exec", startOf("p", []string{"/bin/sh", "-c", script, missed}, rpcParams{"tty": true}), nil)
	c.awaitOutput("p", "stdout", "one\r\n")
	told := eventsOf(c.record(), "p")
	c.drop()
	if err := os.WriteFile(missed, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	again := websocketClient(t, address).initialize(c.session)
	said, after := "", told[len(told)-1].Seq
	for said != "two\r\n" {
		read := again.readProcess("p", rpcParams{"afterSeq": after, "waitMs": 60_000})
		for _, chunk := range read.Chunks {
			said += string(chunk.Chunk)
		}
		if after = read.NextSeq - 1; !strings.HasPrefix("two\r\n", said) {
			t.Fatalf("process/read says %q", said)
		}
	}
	again.result("command/exec/write", writeOf("p", "three\n"), nil)
	exited := again.awaitEvent("command/exec/exited", "p")
	rest := ""
	for _, e := range eventsOf(again.record(), "p") {
		if e.Seq > after {
			rest += string(e.Chunk)
		}
	}
	if rest != "three\r\nthree\r\n" || exited.ExitCode != 5 {
		t.Errorf("it went on with %q and exited with %d", rest, exited.ExitCode)
	}
}
