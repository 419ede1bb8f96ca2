// Package httpclient makes requests over HTTP for others, who choose where they
// go. What must not be reached from here it refuses when it connects, by the
// address that names were resolved to, at every redirect again: so neither a name
// that changes its meaning nor a server elsewhere can lead it there.
//
// A request has a connection of its own, which is closed with the response:
// nothing that one caller has opened is used for another, nor kept. It is HTTP/1.1
// over TCP or TLS. There is no proxy, no cookie, no cache and no decompression, and
// nothing of the server's environment is looked at: what is sent is what the
// caller gave.
//
// Heads are written and kept in their order, as callers can see it; net/http reads
// the responses, and so frames their bodies.
package httpclient
