//go:build race

package harness

// RaceEnabled is whether the race detector makes everything slower and larger.
const RaceEnabled = true

// buildCommand builds a command that is checked for races like the tests.
var buildCommand = []string{"go", "build", "-race"}

// variant is the directory of commands built this way.
const variant = "race"
