//go:build !race

package integration

const raceEnabled = false

var buildCommand = []string{"go", "build"}
