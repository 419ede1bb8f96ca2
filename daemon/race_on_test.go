//go:build race

package daemon_test

// stackFactor is how many times as much stack instrumented code takes: 42 KiB of an
// idle connection, where it is 22 without.
const stackFactor = 2
