// Package relay makes reliable streams of messages out of frames that a
// rendezvous passes on, and may lose with a websocket.
//
// A [Carrier] carries frames, for as long as it lives. An [Endpoint] has streams,
// which live longer: each numbers, acknowledges and repeats what it sends, so
// that every message arrives exactly once and in order, or the stream ends with a
// reason. What the messages say is not its business. Peers that do not
// acknowledge are served plainly: one frame for each message, nothing repeated,
// and their streams end with the carrier.
//
// PROTOCOL.md beside this file has the frames, the states and the timers.
package relay
