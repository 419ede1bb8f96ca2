// Package wsconn carries whole messages over websockets. It is the only importer
// of the websocket library, and the one place for limits of frames and messages,
// pings, close codes and timeouts.
//
// The library does handshakes. Frames are read and written here, because the
// library closes a connection when a control frame cannot be written, or does not
// arrive, within 5 s: a peer that pings and does not read would be dropped together
// with the data that it has not read yet. Outgoing frames are collected in a bounded buffer
// that one goroutine writes, so that many small messages become one write.
//
// A peer that does not read is tolerated without a time limit. A dead peer is
// detected by the kernel ([Tune]) and by missing TCP acknowledgements
// ([Options].DeadAfter).
package wsconn
