package gateway

import (
	"bufio"
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"strings"
	"testing"
)

// gatewayTo runs a gateway to a server, both in separate processes, until the test ends. It
// returns the URL of its websocket listener.
func gatewayTo(t testing.TB, server *harness.Command) (address string) {
	t.Helper()
	c := harness.NewCommand("gateway", "--listen", "ws://127.0.0.1:0", "--upstream", server.URLs[harness.UnixTransport])
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Launch(t)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the gateway did not come up: %v\n%s", err, c.Errors.String())
	}
	return harness.AddressOf(strings.TrimSpace(line))
}

// The trace id of a client is in the server's log of its request, also through a separate
// gateway. Processes do not receive it.
func TestTrace_IsLoggedAndNotInherited(t *testing.T) {
	server := harness.ServeWith(t, []string{"--log-level", "debug"})
	for i, address := range []string{server.Address(harness.WebsocketTransport), gatewayTo(t, server)} {
		c := harness.WebsocketClient(t, address).Initialize("")
		trace, span := fmt.Sprintf("%032x", 0xabc+i), fmt.Sprintf("%016x", 0xdef)
		text := strings.TrimSuffix(harness.RequestText(100, "process/start", harness.StartOf("p", []string{"/usr/bin/env"}, nil)), "}")
		c.Send(fmt.Sprintf(`%s,"trace":{"traceparent":"00-%s-%s-01","tracestate":"a=1"}}`, text, trace, span))
		if answer := c.Reply(100); answer.Error != nil {
			t.Fatalf("the start was refused: %+v", answer.Error)
		}
		c.Until("the process closes", func(frames []harness.RPCFrame) bool {
			events := harness.EventsOf(frames, "p")
			return len(events) > 0 && events[len(events)-1].Method == "process/closed"
		})
		output := harness.OutputOf(c.Record(), "p", "stdout")
		if lower := strings.ToLower(output); !strings.Contains(output, "PATH=") || strings.Contains(lower, "trace") || strings.Contains(output, trace) {
			t.Errorf("a process has the environment %q", output)
		}
		harness.Eventually(t, "the log has the request's trace", func() bool {
			for line := range strings.Lines(server.Errors.String()) {
				if strings.Contains(line, "StartProcess") && strings.Contains(line, trace) && strings.Contains(line, span) {
					return true
				}
			}
			return false
		})
		c.Shut()
	}
}
