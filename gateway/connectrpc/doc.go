// Package connectrpc serves the contract over HTTP/1.1: the protocols Connect and
// gRPC-Web, and with Connect plain JSON, for browsers, curl, and proxies that know HTTP
// only. It knows no method: it forwards the calls of every service by its descriptor.
package connectrpc
