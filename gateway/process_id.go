package gateway

import (
	"fmt"
	"strings"
)

// maxProcessIDBytes is the server's limit.
const maxProcessIDBytes = 1024

// escape precedes the server's id of a process whose client id is empty or begins with
// escape. All other ids are equal on both sides.
const escape = "~"

// processID is a client's id of a process, which the server accepts.
type processID string

// UnmarshalText rejects an id that the server would reject.
func (id *processID) UnmarshalText(text []byte) error {
	*id = processID(text)
	if len(id.server()) > maxProcessIDBytes {
		return fmt.Errorf("processId is longer than %d bytes", maxProcessIDBytes)
	}
	return nil
}

// server returns the server's id. The server would replace an empty id by one of its own.
func (id processID) server() string {
	if id == "" || strings.HasPrefix(string(id), escape) {
		return escape + string(id)
	}
	return string(id)
}

// clientProcessID is the inverse of [processID.server].
func clientProcessID(id string) processID { return processID(strings.TrimPrefix(id, escape)) }
