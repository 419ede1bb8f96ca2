// Package gateway translates the JSON-RPC dialects of exec-server clients into calls of
// the generated gRPC client, whose server is in the same program or on another host. It
// does not start processes or open files itself.
package gateway
