//go:build !race

package daemon_test

const stackFactor = 1
