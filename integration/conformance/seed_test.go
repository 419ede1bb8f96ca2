package conformance

import (
	"github.com/execwire/execwire/integration/harness"
	"slices"
	"strings"
	"testing"
)

// The example session of the reference's README (0.132.0), against a real
// terminal. What differs from it, and why:
//
//   - the result of initialize is not {} but has members; clients ignore them
//   - the result of process/start has sandboxType, as with newer references
//   - output of a terminal has the stream "pty", as its own field list says, not
//     "stdout"
//   - a terminal echoes what is written, and turns "\n" into "\r\n": "ready\r\n",
//     then "hello\r\necho:hello\r\n" in one or more chunks, so that the numbers
//     after it need not be 3 and 4
//   - process/exited of a process that was killed has the exit code 137, not 0,
//     and sandboxDenied
//   - process/closed has a seq
//   - HOME is set, so that the login shell reads no profile of the user who runs this
func TestSeed_ExampleSession(t *testing.T) {
	c := harness.WebsocketClient(t, harness.NewServer(t, nil).Address(harness.WebsocketTransport))
	c.Send(`{"id":1,"method":"initialize","params":{"clientName":"example-client"}}`)
	c.DecodeSession(c.Reply(1))
	c.Send(`{"method":"initialized","params":{}}`)

	c.Send(strings.Replace(`{"id":2,"method":"process/start","params":{"processId":"proc-1","argv":["bash","-lc","printf 'ready\\n'; while IFS= read -r line; do printf 'echo:%s\\n' \"$line\"; done"],"cwd":"/tmp","env":{"PATH":"/usr/bin:/bin"},"tty":true,"pipeStdin":false,"arg0":null}}`,
		`"env":{`, `"env":{"HOME":"`+harness.ShortDir(t)+`",`, 1))
	expectResult(c, 2, `{"processId":"proc-1","sandboxType":"none"}`)
	c.AwaitOutput("proc-1", "pty", "ready\r\n")

	c.Send(`{"id":3,"method":"process/write","params":{"processId":"proc-1","chunk":"aGVsbG8K"}}`)
	expectResult(c, 3, `{"status":"accepted"}`)
	c.AwaitOutput("proc-1", "pty", "ready\r\nhello\r\necho:hello\r\n")

	c.Send(`{"id":4,"method":"process/terminate","params":{"processId":"proc-1"}}`)
	expectResult(c, 4, `{"running":true}`)
	c.ExpectEnd("proc-1", 128+9)

	frames := c.Record()
	var order []string
	for _, f := range frames {
		if f.Kind != "text" {
			continue
		}
		what := f.Method
		if what == "" {
			what = string(f.ID)
		}
		if what != "process/output" || order[len(order)-1] != what {
			order = append(order, what)
		}
	}
	want := []string{"1", "2", "process/output", "3", "process/output", "4", "process/exited", "process/closed"}
	if !slices.Equal(order, want) {
		t.Errorf("the server wrote %q, want %q", order, want)
	}
}

// expectResult checks that the response has this result, byte for byte.
func expectResult(c *harness.RPCClient, id int, want string) {
	c.Helper()
	if answer := c.Reply(id); string(answer.Result) != want {
		c.Fatalf("the answer to %d is %s, %+v; want %s", id, answer.Result, answer.Error, want)
	}
}
