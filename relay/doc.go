// Package relay implements reliable message streams over frames that a rendezvous
// forwards and may lose together with a websocket.
//
// A [Carrier] carries frames and is one connection. An [Endpoint] has streams,
// which outlive carriers: each stream numbers, acknowledges and retransmits its
// segments, so that every message arrives exactly once and in order, or the
// stream ends with a reason. Payloads are opaque. Peers that do not acknowledge
// are served plainly: one frame per message, no retransmission, and their streams
// end with the carrier.
//
// PROTOCOL.md in this directory specifies the frames, the states and the timers.
package relay
