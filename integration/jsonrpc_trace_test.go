package integration

import (
	"bufio"
	"fmt"
	"strings"
	"testing"
)

// gatewayTo runs a gateway to a server, both in processes of their own, until the
// test ends. It returns where its websocket door is.
func gatewayTo(t testing.TB, server *command) (address string) {
	t.Helper()
	c := newCommand("gateway", "--listen", "ws://127.0.0.1:0", "--upstream", server.urls[unixDoor])
	said, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.launch(t)
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		t.Fatalf("the gateway did not come up: %v\n%s", err, c.errors.String())
	}
	return addressIn(strings.TrimSpace(line))
}

// Where a client is in its trace is in the server's log of its request, through
// a gateway elsewhere as well; processes are not told of it.
func TestATraceIsInTheLogAndNotInProcesses(t *testing.T) {
	server := serveWith(t, []string{"--log-level", "debug"})
	for i, address := range []string{server.address(websocketDoor), gatewayTo(t, server)} {
		c := websocketClient(t, address).initialize("")
		trace, span := fmt.Sprintf("%032x", 0xabc+i), fmt.Sprintf("%016x", 0xdef)
		text := strings.TrimSuffix(requestText(100, "process/start", startOf("p", []string{"/usr/bin/env"}, nil)), "}")
		c.send(fmt.Sprintf(`%s,"trace":{"traceparent":"00-%s-%s-01","tracestate":"a=1"}}`, text, trace, span))
		if answer := c.reply(100); answer.Error != nil {
			t.Fatalf("the start was refused: %+v", answer.Error)
		}
		c.until("the process closes", func(frames []rpcFrame) bool {
			events := eventsOf(frames, "p")
			return len(events) > 0 && events[len(events)-1].method == "process/closed"
		})
		said := outputOf(c.record(), "p", "stdout")
		if lower := strings.ToLower(said); !strings.Contains(said, "PATH=") || strings.Contains(lower, "trace") || strings.Contains(said, trace) {
			t.Errorf("a process has the environment %q", said)
		}
		eventually(t, "the log has the request's trace", func() bool {
			for line := range strings.Lines(server.errors.String()) {
				if strings.Contains(line, "StartProcess") && strings.Contains(line, trace) && strings.Contains(line, span) {
					return true
				}
			}
			return false
		})
		c.shut()
	}
}
