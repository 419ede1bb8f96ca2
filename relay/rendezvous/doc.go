// Package rendezvous is the hub where executors and harnesses of the relay meet:
// the registry that executors register at, and the rendezvous that routes frames
// between their websockets.
//
// A frame is routed by its stream id, and nothing else of it is read but whether
// it ends the stream: delivery, order and duplicates are the business of the two
// ends. The hub says one thing itself, the end of a stream, when one of its ends
// has departed or is too slow.
//
// A stream has a queue in each direction, which holds what its sender may have
// on the way; a stream that is slow fills its own and nobody waits for it. The
// executor's websocket is its lease: a later registration that connects takes
// the executor over, whatever the earlier one does.
package rendezvous
