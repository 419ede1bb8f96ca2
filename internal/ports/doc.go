// Package ports finds the TCP ports on which processes listen, connects to them, and listens on ports
// for callers.
//
// The kernel does not report when a socket begins to listen. While a [Watch] is open, one
// goroutine asks it for all listening sockets ten times a second, which takes well below a
// millisecond, and looks into /proc for their owners only when the set has changed.
package ports
