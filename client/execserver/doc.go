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
// A connection has one session, which is the default session of its calls. When
// the connection is lost it is made again and the session resumed; calls that were
// under way then fail with UNAVAILABLE, as those of a gRPC channel do, and streams
// are opened again by whoever wants to go on. When it is gone for good, all calls
// fail with [ErrClosed] or a [*LostError].
package execserver
