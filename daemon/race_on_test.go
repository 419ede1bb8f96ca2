//go:build race

package daemon_test

// stackFactor is the factor by which the race detector increases the stacks of an idle
// connection: 42 KiB instead of 22 KiB.
const stackFactor = 2
