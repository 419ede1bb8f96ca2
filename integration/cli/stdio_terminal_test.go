package cli

import (
	"github.com/execwire/execwire/integration/harness"
	"strings"
	"testing"
)

// A server that reads from a terminal is in its foreground process group despite its guardian:
// it is not stopped for reading, receives keys once, and the next program gets the terminal
// without help of a shell.
func TestStdioServer_AtATerminal_IsForeground(t *testing.T) {
	p := harness.NewPane(t, 150, 24)
	for key, what := range map[string]string{"C-d": "the end of the input", "C-c": "an interrupt"} {
		p.Enter("clear; sh -c 'echo up for " + key + "; " + harness.Execwire + " serve --listen stdio 2>/dev/null; echo code $?; exec head -n 1'")
		// What is typed while the shell edits its line ends with a carriage return
		// for the program that reads it later.
		p.Await("that the shell has begun", func(screen string) bool { return strings.HasPrefix(screen, "up for "+key+"\n") })
		p.Enter(`{"id":5,"method":"no/such"}`)
		p.Await("the answer", func(screen string) bool { return strings.Contains(screen, `"code":-32601`) })
		p.Key("C-z") // nothing would continue it
		p.Enter(`{"id":6,"method":"other"}`)
		p.Await("another answer", func(screen string) bool { return strings.Contains(screen, `"id":6}`+"\n") })
		p.Key(key)
		p.Await("that the server ends well after "+what, func(screen string) bool { return strings.Contains(screen, "code 0\n") })
		p.Enter("back")
		awaitOutput(p, "back", "local[0]$")
	}
}
