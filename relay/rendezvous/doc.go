// Package rendezvous implements the hub of the relay: the registry where
// executors register, and the rendezvous that routes frames between the
// websockets of executors and harnesses.
//
// Frames are routed by stream id. The hub decodes nothing else except whether a
// frame is a reset; delivery, order and deduplication are up to the two ends. The
// only frames that the hub sends itself are resets, when an end has disconnected
// or is too slow.
//
// Each stream has a queue per direction, sized for the window of its sender. A
// slow stream fills only its own queue. The executor's websocket is its lease:
// when a later registration connects, it takes over, whatever the earlier one
// does.
package rendezvous
