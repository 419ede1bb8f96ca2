//go:build linux

package handover

import (
	"fmt"
	"os"
	"strings"
)

// FailpointVariable is the environment variable with the name of a file in which tests name
// the steps that fail. Who can set it for a server can end it just as well.
const FailpointVariable = "HANDOVER_FAILPOINTS"

// Step is a step of an upgrade at which it can be made to fail.
type Step string

// The steps. The first four are those of the program before.
const (
	Freeze  Step = "freeze"  // clients are about to be disconnected
	Frozen  Step = "frozen"  // nothing moves any more
	Written Step = "written" // the state is written
	Execute Step = "execute" // execve fails
	Taken   Step = "taken"   // the new program has the state
	Restore Step = "restore" // it has listeners and sessions
)

// Fail returns an error if the step was made to fail.
func Fail(step Step) error {
	file := os.Getenv(FailpointVariable)
	if file == "" {
		return nil
	}
	steps, _ := os.ReadFile(file)
	for name := range strings.FieldsSeq(string(steps)) {
		if name == string(step) {
			return fmt.Errorf("a test makes the step %s fail", step)
		}
	}
	return nil
}
