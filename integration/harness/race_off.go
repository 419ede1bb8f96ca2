//go:build !race

package harness

// RaceEnabled is whether the race detector makes everything slower and larger.
const RaceEnabled = false

var buildCommand = []string{"go", "build"}

// variant is the directory of commands built this way.
const variant = "plain"
