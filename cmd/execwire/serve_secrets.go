package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// keepSecrets keeps the memory and the environment of this program from other
// programs of its user, the processes that it starts among them: they cannot
// read it through /proc nor trace it, and it leaves no core dump. Those of root
// can.
func keepSecrets() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("failed to hide this program's memory from others: %w", err)
	}
	return nil
}
