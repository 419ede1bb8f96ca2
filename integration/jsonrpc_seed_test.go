package integration

import (
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
//   - HOME is set, so that the login shell reads no profile of whoever runs this
func TestTheExampleSessionOfTheSeed(t *testing.T) {
	c := websocketClient(t, newServer(t, nil).address(websocketDoor))
	c.send(`{"id":1,"method":"initialize","params":{"clientName":"example-client"}}`)
	c.decodeSession(c.reply(1))
	c.send(`{"method":"initialized","params":{}}`)

	c.send(strings.Replace(`{"id":2,"method":"process/start","params":{"processId":"proc-1","argv":["bash","-lc","printf 'ready\\n'; while IFS= read -r line; do printf 'echo:%s\\n' \"$line\"; done"],"cwd":"/tmp","env":{"PATH":"/usr/bin:/bin"},"tty":true,"pipeStdin":false,"arg0":null}}`,
		`"env":{`, `"env":{"HOME":"`+shortDir(t)+`",`, 1))
	c.expectResult(2, `{"processId":"proc-1","sandboxType":"none"}`)
	c.awaitOutput("proc-1", "pty", "ready\r\n")

	c.send(`{"id":3,"method":"process/write","params":{"processId":"proc-1","chunk":"aGVsbG8K"}}`)
	c.expectResult(3, `{"status":"accepted"}`)
	c.awaitOutput("proc-1", "pty", "ready\r\nhello\r\necho:hello\r\n")

	c.send(`{"id":4,"method":"process/terminate","params":{"processId":"proc-1"}}`)
	c.expectResult(4, `{"running":true}`)
	c.expectEnd("proc-1", 128+9)

	frames := c.record()
	var order []string
	for _, f := range frames {
		if f.kind != "text" {
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
		t.Errorf("the server said %q, want %q", order, want)
	}
}

// expectResult wants the answer to be this result, byte for byte.
func (c *rpcClient) expectResult(id int, want string) {
	c.Helper()
	if answer := c.reply(id); string(answer.Result) != want {
		c.Fatalf("the answer to %d is %s, %+v; want %s", id, answer.Result, answer.Error, want)
	}
}
