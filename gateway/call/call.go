// Package call has what the calls of all subjects (processes, files, HTTP, ports) share:
// their order, results that encode themselves, limits of large results, and watches.
package call

import (
	"io"

	"github.com/execwire/execwire/internal/jsonrpc"
)

// Connection is the JSON-RPC connection of a call.
type Connection interface {
	// Spawn runs f in a goroutine of the connection, which waits for it at its end.
	Spawn(f func())
	// Send sends one message, which appendTo appends when nothing precedes it. It
	// blocks while the client does not read. After an error the connection ends.
	Send(appendTo func(dst []byte) []byte) error
	// ContentLimit returns the largest content of an answer in bytes.
	ContentLimit() int
}

// Appendable is a result that encodes itself.
type Appendable interface {
	// AppendTo appends the result as JSON.
	AppendTo(dst []byte) []byte
}

// Streamable is a result that encodes itself in parts. An error after the first byte
// ends the connection.
type Streamable interface {
	// StreamTo writes the result, one JSON value.
	StreamTo(w io.Writer) error
}

// SendObserver is a result that is notified after it was sent.
type SendObserver interface {
	// Sent is called once, unless sending failed.
	Sent()
}

// Checked is a call with a validation of its parameters.
type Checked interface {
	// Check validates decoded parameters.
	Check() *jsonrpc.Error
}

// MaxServerMessage is the largest message accepted from the server.
const MaxServerMessage = 64 << 20
