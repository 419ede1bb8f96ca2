//go:build race

package integration

// raceEnabled is whether the race detector makes everything slower and larger.
const raceEnabled = true

// buildCommand builds a command that is checked for races like the tests.
var buildCommand = []string{"go", "build", "-race"}
