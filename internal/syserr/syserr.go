// Package syserr tells what an error of a connection or a pipe means. The numbers differ:
// on Windows errors of sockets are not the constants of package syscall with the names of
// POSIX.
package syserr

import (
	"errors"
	"slices"
	"syscall"
)

// IsRefused reports whether nothing listens at the address.
func IsRefused(err error) bool { return is(err, refused) }

// IsInUse reports whether something listens at the address already.
func IsInUse(err error) bool { return is(err, inUse) }

// IsReset reports whether the peer has reset the connection.
func IsReset(err error) bool { return is(err, reset) }

// IsLost reports whether a connection has ended without an answer: reset, aborted, or closed
// by the peer while it was written to.
func IsLost(err error) bool { return is(err, reset) || is(err, lost) || is(err, brokenPipe) }

// IsBrokenPipe reports whether the other end of a pipe or connection is closed.
func IsBrokenPipe(err error) bool { return is(err, brokenPipe) }

func is(err error, list []syscall.Errno) bool {
	return slices.ContainsFunc(list, func(e syscall.Errno) bool { return errors.Is(err, e) })
}
