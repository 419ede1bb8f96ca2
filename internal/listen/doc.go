// Package listen opens listeners: it parses their URLs, rejects insecure ones and
// identifies the peers of their connections.
//
// A listener without authentication must not be reachable from other hosts: plain
// TCP binds to loopback only, and a unix socket is accessible only to its owner
// from the moment it exists. A listener with TLS may be reachable, and one for
// websockets, if callers are authenticated.
package listen
