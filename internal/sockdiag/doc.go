//go:build linux

// Package sockdiag asks the kernel which user owns the socket at the other end of a TCP connection
// within this host, and which TCP sockets listen: with sock_diag(7), or where that is missing with
// /proc/net/tcp. It tells the state of a connection, too. It knows no RPCs and no principals.
package sockdiag
