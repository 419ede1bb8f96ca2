//go:build race

package integration

// raceEnabled makes the command a race-checked one like the tests.
const raceEnabled = true
