// Package gateway speaks the dialects of JSON-RPC that exec-server clients
// speak, and asks a core for what they want by the generated gRPC client, be it
// in this program or on another host. It knows nothing of processes or files.
package gateway
