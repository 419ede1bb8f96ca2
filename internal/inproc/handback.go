package inproc

import "google.golang.org/grpc"

// handsBack is a call option by which a caller promises to be done with a
// message of the handler, at every depth, when it asks for the next one. Callers
// bring an option of their own, which says nothing to a connection over a wire:
//
//	type option struct{ grpc.EmptyCallOption }
//
//	func (option) HandsBack() {}
type handsBack interface{ HandsBack() }

func promised(opts []grpc.CallOption) bool {
	for _, o := range opts {
		if _, ok := o.(handsBack); ok {
			return true
		}
	}
	return false
}

// ReuseAfter returns which message of the handler may have the memory of the
// first one, counted from there, and so on for each: its sending begins when the
// caller is known to be done with the earlier one. It is 0 if the caller promised
// nothing: then every message is memory of its own. Handlers find it by
// [grpc.ServerTransportStreamFromContext].
func (t transportStream) ReuseAfter() int {
	if !t.ss.call.handedBack {
		return 0
	}
	// When a message was sent, at most those are in the queue that fit. The one
	// before them may be in use; the caller asked for it, so all others are not.
	return cap(t.ss.call.responses) + 2
}
