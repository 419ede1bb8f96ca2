package integration

import (
	"strings"
	"testing"
)

// A server that reads a terminal has its foreground, although a guardian stands
// between it and the shell: it is not stopped for reading, keys reach it once,
// and whoever comes after it has the terminal, without a shell that sees to that.
func TestAServerAtATerminal(t *testing.T) {
	p := newPane(t, 150, 24)
	for key, what := range map[string]string{"C-d": "the end of the input", "C-c": "an interrupt"} {
		p.enter("clear; sh -c 'echo up for " + key + "; " + execwire + " serve --listen stdio 2>/dev/null; echo code $?; exec head -n 1'")
		// What is typed while the shell edits its line ends with a carriage return
		// for whoever reads it later.
		p.await("that the shell has begun", func(screen string) bool { return strings.HasPrefix(screen, "up for "+key+"\n") })
		p.enter(`{"id":5,"method":"no/such"}`)
		p.await("the answer", func(screen string) bool { return strings.Contains(screen, `"code":-32601`) })
		p.key("C-z") // nobody would let it go on
		p.enter(`{"id":6,"method":"other"}`)
		p.await("another answer", func(screen string) bool { return strings.Contains(screen, `"id":6}`+"\n") })
		p.key(key)
		p.await("that the server ends well after "+what, func(screen string) bool { return strings.Contains(screen, "code 0\n") })
		p.enter("back")
		p.awaitOutput("back", "local[0]$")
	}
}
