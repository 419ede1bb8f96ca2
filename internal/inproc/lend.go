package inproc

import "google.golang.org/grpc"

// lends is a call option by which a caller lends memory for the data of the answer
// to a unary call, so that the handler needs none of its own. The answer may be in
// it or not. When the call has failed the handler may still write into it: the
// caller must not use it any more then. Callers bring an option of their own,
// which says nothing to a connection over a wire:
//
//	type option struct {
//		grpc.EmptyCallOption
//		memory []byte
//	}
//
//	func (o option) Lends() []byte { return o.memory }
type lends interface{ Lends() []byte }

func lentBy(opts []grpc.CallOption) []byte {
	for _, o := range opts {
		if o, ok := o.(lends); ok {
			return o.Lends()
		}
	}
	return nil
}

// Lent returns the memory that the caller lends for the answer to a unary call;
// nil if it lends none. Handlers find it by [grpc.ServerTransportStreamFromContext].
func (t transportStream) Lent() []byte { return t.ss.call.lent }
