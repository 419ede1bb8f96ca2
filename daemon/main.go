package daemon

import (
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/server"
)

// Main does what the command line says if a daemon has started this program to find
// out what sandboxes work, or as a helper for calls about files, and then ends the
// process. Otherwise it returns at once. The main function of a program that has a
// daemon calls it first of all, or no sandbox works.
func Main() {
	sandbox.Main()
	server.FileHelperMain()
}
