// Package sockdiag asks the kernel which user owns the socket at the other end of a TCP connection
// within this host: with sock_diag(7), or where that is missing with /proc/net/tcp. It knows no
// RPCs and no principals.
package sockdiag
