// Package sockowner lets a program that others of its user cannot inspect show which TCP sockets are its
// own, and finds the process that showed one. See docs/decisions/0009-socket-owner.md.
package sockowner

import "net"

// Dialer returns a dialer whose sockets [Of] finds. Beyond Linux it is an ordinary one.
func Dialer() *net.Dialer { return &net.Dialer{Control: show} }
