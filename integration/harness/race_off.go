//go:build !race

package harness

var buildCommand = []string{"go", "build"}

// variant is the directory of commands built this way.
const variant = "plain"
