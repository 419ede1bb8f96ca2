//go:build !race

package testrace

// Enabled is whether the race detector makes everything slower and larger.
const Enabled = false
