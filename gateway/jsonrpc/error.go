package jsonrpc

import "fmt"

// Codes of errors.
const (
	// CodeInvalidRequest: the message is malformed, or must not come now.
	CodeInvalidRequest = -32600
	// CodeMethodNotFound: nobody knows the method.
	CodeMethodNotFound = -32601
	// CodeInvalidParams: the parameters cannot be decoded.
	CodeInvalidParams = -32602
	// CodeInternal: everything without a code of its own.
	CodeInternal = -32603
	// CodeNotFound: a path does not exist.
	CodeNotFound = -32004
	// CodeLimitReached: a limit was reached; the message names it.
	CodeLimitReached = -32005
	// CodeSessionAttached: the session is attached to another connection.
	CodeSessionAttached = -32010
)

// Error is the error object of a response.
type Error struct {
	Code    int    // one of the codes above, or the peer's own
	Message string // for people
	// Data is for programs: anything that encoding/json can write, left out when
	// nil. An Error that was parsed has a json.RawMessage, a copy.
	Data any
}

// Errorf returns an error with a formatted message.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string { return e.Message }
