// Command execwire starts and controls processes for somebody else: as a
// server, and as a client at a terminal.
package main

import (
	"os"

	"github.com/execwire/execwire/daemon"
)

func main() {
	daemon.Main()
	os.Exit(execute(os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}
