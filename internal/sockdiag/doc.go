// Package sockdiag asks the kernel who owns the socket at the other end of a TCP
// connection within this host: by sock_diag(7), or where there is none by
// /proc/net/tcp. It knows no RPC and no principal.
package sockdiag
