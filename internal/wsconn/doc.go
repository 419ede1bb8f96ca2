// Package wsconn carries whole messages over websockets. It is the only importer
// of the websocket library, and decides in one place what frames and messages
// may be large, when to ping, what a close means and how long it may take.
//
// The library shakes hands and reads. Writing is done here: the library gives a
// control frame 5 s and then closes the connection, so that a peer that pings
// and does not read would be dropped, and with it what it has not yet read.
// Outgoing frames are gathered in a bounded buffer that one goroutine empties:
// many small messages become one write.
//
// A peer that does not read is waited for without a limit. A peer that is gone
// is found by the kernel ([Tune]) and by looking whether it still acknowledges
// what it is sent ([Options].DeadAfter).
package wsconn
