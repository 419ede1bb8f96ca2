// Package testrace tells tests whether they were built with the race detector.
package testrace

import (
	"os"
	"testing"
)

// WithoutRace skips a test in a build with the race detector, except in make soak; make
// test-slow runs it without. It is for tests that the race detector makes much slower, and
// that are not about concurrency: loads, simulations in one goroutine, sizes of messages.
func WithoutRace(t testing.TB) {
	t.Helper()
	if Enabled && os.Getenv("EXECWIRE_SOAK") == "" {
		t.Skip("runs without the race detector in make test-slow, with it in make soak")
	}
}

// MeasuresMemory skips a test in every build with the race detector, which uses memory of
// its own; make test-slow runs it without.
func MeasuresMemory(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("measures memory: runs without the race detector in make test-slow")
	}
}
