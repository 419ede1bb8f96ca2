// Package execserver reaches a server of the exec-server protocol (JSON-RPC over a
// websocket or over the standard streams of a command; gateway/PROTOCOL.md) as if
// it were a gRPC server: a [Conn] is a channel for generated clients, and for
// everything in package client.
//
// It is the gateway the other way round. Every call becomes the requests of the
// protocol that do the same, notifications become the messages of streams, and
// errors get back the status they had before a gateway made error objects of them.
// What the protocol has no words for fails with UNIMPLEMENTED at once.
//
// Servers of ours are asked about files, the environment and HTTP in the words of the
// contract (core/call and core/stream), so that nothing is lost. Those of the
// reference can do less. To rename, to make symbolic links, to watch, to put a file in
// the place of another, to give permission bits, to follow no links and to leave
// names out of a walk fail with NOT_IMPLEMENTED before anything is done. Permission
// bits are supposed to be 0644 and 0755, links are listed as what they lead to, and
// those that lead to nothing not at all; older ones tell no sizes, and read and write
// files as a whole, those of up to 11 MiB in writing.
//
// A connection has one session, which is the default session of its calls. When
// the connection is lost it is made again and the session resumed; calls that were
// under way then fail with UNAVAILABLE, as those of a gRPC channel do, and streams
// are opened again by whoever wants to go on. When it is gone for good, all calls
// fail with [ErrClosed] or a [*LostError].
package execserver
