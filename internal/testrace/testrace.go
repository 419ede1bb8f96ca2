// Package testrace tells tests whether they were built with the race detector, and skips
// those that run without it.
package testrace

import (
	"os"
	"testing"
)

// Slow skips a test in short runs, which are those with the race detector. make test-slow
// runs it, as small as -short makes it: that a package runs in one go is one link less.
func Slow(t testing.TB) {
	t.Helper()
	if testing.Short() && os.Getenv("EXECWIRE_SLOW_TESTS") == "" {
		t.Skip("slow: runs in make test-slow, a part of make test")
	}
}

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
