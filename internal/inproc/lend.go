package inproc

import "google.golang.org/grpc"

// Lend is a call option with which a caller lends memory for the data of a unary
// response. The response may use it or not. If the call fails the handler may
// still write to it: the caller must not use it any more. Other connections
// ignore it.
type Lend struct {
	grpc.EmptyCallOption
	// Memory is what is lent. Nil lends nothing.
	Memory []byte
}

// Lent returns the memory that the caller lends for the response to a unary call;
// nil if none. Handlers find it by [grpc.ServerTransportStreamFromContext].
func (t transportStream) Lent() []byte { return t.ss.call.lent }
