// Package httpclient sends HTTP requests on behalf of callers who choose the URL.
// Addresses that must not be reached from here are rejected when connecting,
// after name resolution, and again at every redirect, so that neither DNS
// rebinding nor a redirect bypasses the rules.
//
// Each request has its own connection, which is closed with the response; nothing
// is shared between callers or kept. The protocol is HTTP/1.1 over TCP or TLS.
// There is no proxy, no cookie, no cache and no decompression, and the server's
// environment is ignored: exactly what the caller specified is sent.
//
// Heads are written and returned in order, since callers can see it; net/http
// parses the responses and frames their bodies.
package httpclient
