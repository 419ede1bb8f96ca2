package daemon

import (
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/server"
)

// Main does the work of a child process and exits, if a daemon has started this
// program as one: to probe the sandboxes, or for confined file calls. Otherwise it
// returns at once. The main function of a program with a daemon must call it first,
// or sandboxes do not work.
func Main() {
	sandbox.Main()
	server.FileWorkerMain()
}
