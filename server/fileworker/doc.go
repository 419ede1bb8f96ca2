// Package fileworker runs worker processes: confined copies of this program that serve file calls to the server that started
// them. A worker serves gRPC on its standard output, which is a socket, and receives descriptors on its standard input: one
// that calls use, and connections for unary calls.
//
// A [Pool] bounds all workers of a server. A [Set] has the workers of one session, one for each confinement. A call uses a
// worker through a [Lease]. An idle worker is kept for a while, and is evicted earlier when another is needed.
package fileworker
