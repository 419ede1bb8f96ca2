package inproc

import "google.golang.org/grpc"

// InCaller is a call option for unary calls with which the handler runs in the goroutine of the caller.
// Such a call returns only after its handler, also when its context has ended: it is for handlers that then
// return soon. Other connections ignore it. With [ReceiveEach] it takes 12 of 240 µs off a key in a terminal
// over JSON-RPC.
type InCaller struct{ grpc.EmptyCallOption }
