//go:build race

package harness

// buildCommand builds a command that is checked for races like the tests.
var buildCommand = []string{"go", "build", "-race"}

// variant is the directory of commands built this way.
const variant = "race"
