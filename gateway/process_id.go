package gateway

import (
	"fmt"
	"strings"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

// maxProcessIDBytes is the longest id of a process in the core.
const maxProcessIDBytes = 1024

// escape begins the ids of the core whose client has an empty one, or one that
// begins so itself. Every other id is the same on both sides.
const escape = "~"

// coreProcessID returns the id that the core has for the client's: the core
// takes an empty one for a wish to choose one itself.
func coreProcessID(id string) string {
	if id == "" || strings.HasPrefix(id, escape) {
		return escape + id
	}
	return id
}

// clientProcessID is the reverse of coreProcessID.
func clientProcessID(id string) string { return strings.TrimPrefix(id, escape) }

// checkProcessID refuses an id that the core would not take.
func checkProcessID(id string) *jsonrpc.Error {
	if len(coreProcessID(id)) > maxProcessIDBytes {
		return &jsonrpc.Error{
			Code:    jsonrpc.CodeInvalidParams,
			Message: fmt.Sprintf("processId is longer than %d bytes", maxProcessIDBytes),
			Data:    map[string]any{"field": "processId", "limit_bytes": maxProcessIDBytes},
		}
	}
	return nil
}
