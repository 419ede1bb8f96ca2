// Command testprograms is the programs of package testproc in a small binary without the race
// detector, which starts in a tenth of the time of a test binary.
package main

import (
	"fmt"
	"os"

	"github.com/execwire/execwire/internal/testproc"
)

func main() {
	testproc.Main()
	fmt.Fprintln(os.Stderr, "testprograms: it runs programs for tests only")
	os.Exit(2)
}
