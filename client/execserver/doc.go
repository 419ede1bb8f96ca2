// Package execserver is a client of the exec-server protocol: JSON-RPC over a websocket,
// a stream of a relay, or the stdio of a command. A [Conn] is a gRPC channel for package
// client: it makes each call by the methods of the reference implementation, which
// gateway/PROTOCOL.md describes, and converts notifications into messages of streams and
// error objects into statuses.
//
// It can start processes, pass their input and output, signal and terminate them, wait
// for their end, and work on files. Every other call fails with NOT_IMPLEMENTED before
// anything is done, for example renaming, symbolic links, watching, replacing a file in
// one step, digests and permission bits of files, and limits of processes. Execwire
// servers support those over gRPC; over this protocol they can, unlike the reference,
// also close the input of a process, resize terminals, send every signal and terminate
// gracefully.
//
// Permission bits are reported as 0644 and 0755. Links are listed with the type of their
// target, and omitted if that is missing. Older servers report no sizes, and read and
// write whole files, the latter of up to 11 MiB.
//
// A connection has one session, which is the default session of its calls. When the
// connection is lost, it is made again and the session is resumed. Calls in progress then
// fail with UNAVAILABLE, as those of a gRPC channel, and their callers repeat them. When
// the session is permanently lost, all calls fail with [ErrClosed] or a [*LostError].
//
// # Processes
//
// Processes end with the connection, so each has an owner, by RunProcess; StartProcess is
// not implemented. Each process has one log of the events that the owner has not
// acknowledged (process_log.go). Notifications and, after a lost connection, process/read
// fill it (process_incoming.go, process_read.go). As the protocol has no acknowledgements,
// the connection is not read from while a window is unacknowledged and nothing else needs
// it; otherwise notifications are dropped, and what the server still has is read when the
// owner has acknowledged; the rest is a gap. Input of owners is written by one goroutine
// per process (process_stdin.go).
package execserver
