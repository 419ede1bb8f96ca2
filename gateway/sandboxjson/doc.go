// Package sandboxjson parses the JSON shapes of sandbox policies, of all versions of
// the exec-server protocol, into the message of the server. It does no I/O.
package sandboxjson
