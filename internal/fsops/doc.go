// Package fsops opens, reads, writes, lists, copies, removes and watches the files
// that users name. It is the only package that opens users' paths.
//
// Paths are absolute, and cleaned lexically before use. A call never waits for
// another process, nor disturbs one: special files are refused without being
// opened, and one that comes between is opened without blocking. What was looked
// at is what is used: trees are walked by descriptors, files are judged after
// they were opened, and links below what was named are not followed, except where
// something is copied over them.
//
// Functions may be called concurrently. Each error is an *[Error], or the cause
// of the end of the context that was given.
package fsops
