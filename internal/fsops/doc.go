// Package fsops opens, reads, writes, lists, copies, removes and watches the files
// that users name. It is the only package that opens users' paths.
//
// Paths are absolute, and cleaned lexically before use. A call neither waits for another process nor
// affects one: special files are rejected without being opened, and every open is non-blocking.
// Checks cannot be outdated: trees are walked by descriptors, files are checked after they were
// opened, and links below the given path are not followed, except by a copy onto one.
//
// Functions may be called concurrently. Each error is an *[Error], or the cause of the context.
package fsops
