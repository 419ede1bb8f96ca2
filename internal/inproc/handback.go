package inproc

import "google.golang.org/grpc"

// HandBack is a call option with which a caller promises to be done with a
// message of the handler, at every depth, when it receives the next one. Other
// connections ignore it.
type HandBack struct{ grpc.EmptyCallOption }

// HandBackAcknowledged is a call option with which a caller promises to be done with the
// data of an event, at every depth, when it acknowledges the event. Other connections
// ignore it.
type HandBackAcknowledged struct{ grpc.EmptyCallOption }

// HandsBackAcknowledged reports whether the memory of what the caller has acknowledged may
// be reused. Handlers find it by [grpc.ServerTransportStreamFromContext].
func (t transportStream) HandsBackAcknowledged() bool { return t.ss.call.acknowledged }

// ReuseAfter returns n such that the nth message after a message may reuse its
// memory: the caller is known to be done with the earlier one when the later one
// is sent. It is 0 if the caller promised nothing. Handlers find it by
// [grpc.ServerTransportStreamFromContext].
func (t transportStream) ReuseAfter() int {
	if !t.ss.call.handedBack {
		return 0
	}
	// When a message is sent, the queue holds at most its capacity. The message
	// before those may be in use; the caller has asked for it, so it is done with
	// all others.
	return cap(t.ss.call.responses) + 2
}
