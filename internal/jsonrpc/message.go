package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
)

// Kind is the kind of a message.
type Kind int

// Kinds of messages.
const (
	Request      Kind = iota + 1 // a method and an id
	Notification                 // a method without an id
	Response                     // a result or an error, and an id
)

// Message is a parsed message. Its raw members alias the parsed data.
type Message struct {
	// Kind is the kind of the message.
	Kind Kind
	// ID is the id of a request or a response.
	ID ID
	// Method is the method of a request or a notification; it may be empty.
	Method string
	// Params is a JSON value without surrounding whitespace, or nil if absent.
	Params []byte
	// Result is a JSON value, of a response without an error.
	Result []byte
	// Error is the error of a response without a result.
	Error *Error
	// Trace is the trace context of the caller; nil if absent.
	Trace *Trace
}

// Trace is a W3C trace context as the peer sent it, not validated.
type Trace struct {
	Parent string // traceparent, "" if absent
	State  string // tracestate, "" if absent
}

// members are the raw members of an envelope; nil if absent.
type members struct {
	id, method, params, result, failure, trace []byte
}

func (m *members) named(name []byte) *[]byte {
	switch string(name) {
	case "id":
		return &m.id
	case "method":
		return &m.method
	case "params":
		return &m.params
	case "result":
		return &m.result
	case "error":
		return &m.failure
	case "trace":
		return &m.trace
	}
	return nil
}

// Parse parses one message and validates all of data, which the message aliases. The
// error is for the peer: it has the problem and its position, and completes the text
// "failed to parse JSON-RPC message from ...: ".
func Parse(data []byte) (Message, error) {
	found, err := envelope(data)
	if err != nil {
		return Message{}, err
	}
	if found.method == nil {
		return found.response()
	}
	return found.call()
}

func envelope(data []byte) (found members, err error) {
	s := newScanner(data)
	if s.next("a value") != '{' {
		s.value(0)
		s.end()
		s.fail(errors.New("expected a JSON-RPC object"))
		return found, s.err
	}
	s.values++
	for object := s.open(0); s.member(&object); {
		place := found.named(object.name)
		if raw := s.raw(1); place != nil {
			*place = raw
		}
	}
	s.end()
	return found, s.err
}

// call returns a request or a notification.
func (m *members) call() (Message, error) {
	call := Message{Kind: Notification, Params: m.params}
	if m.id != nil {
		call.Kind = Request
		id, err := parseID(m.id)
		if err != nil {
			return Message{}, err
		}
		call.ID = id
	}
	s := newScanner(m.method)
	method, ok := s.wantText()
	if !ok {
		return Message{}, s.err
	}
	call.Method = string(method)
	trace, err := parseTrace(m.trace)
	if err != nil {
		return Message{}, err
	}
	call.Trace = trace
	return call, nil
}

func parseTrace(raw []byte) (*Trace, error) {
	if raw == nil || string(raw) == "null" {
		return nil, nil
	}
	var wire w3cTraceContext
	if err := decode(raw, reflect.ValueOf(&wire).Elem()).err; err != nil {
		return nil, err
	}
	return (*Trace)(&wire), nil
}

// w3cTraceContext is the wire form of a Trace.
type w3cTraceContext struct {
	Parent string `param:"traceparent,optional,nullable"`
	State  string `param:"tracestate,optional,nullable"`
}

func (m *members) response() (Message, error) {
	if m.result == nil && m.failure == nil {
		return Message{}, errors.New("missing field `error`")
	}
	if m.id == nil {
		return Message{}, errors.New("missing field `id`")
	}
	id, err := parseID(m.id)
	if err != nil {
		return Message{}, err
	}
	if m.result != nil {
		return Message{Kind: Response, ID: id, Result: m.result}, nil
	}
	var failure responseError
	if err := decode(m.failure, reflect.ValueOf(&failure).Elem()).err; err != nil {
		return Message{}, err
	}
	answer := &Error{Code: int(failure.Code), Message: failure.Message}
	if failure.Data != nil && string(failure.Data) != "null" {
		answer.Data = json.RawMessage(bytes.Clone(failure.Data))
	}
	return Message{Kind: Response, ID: id, Error: answer}, nil
}

// responseError is the wire form of an Error.
type responseError struct {
	Code    int64           `param:"code"`
	Message string          `param:"message"`
	Data    json.RawMessage `param:"data,optional"`
}

// parseID parses an id that was scanned.
func parseID(raw []byte) (ID, error) {
	if raw[0] == '"' {
		s := newScanner(raw)
		return TextID(string(s.content(s.text()))), nil
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || string(raw) == "-0" {
		return ID{}, errors.New("data did not match any variant of untagged enum RequestId: " +
			"an id is a string or an integer of 64 bits")
	}
	return NumberID(n), nil
}

// ID identifies a request and its response: a string or an integer chosen by the
// caller. IDs are comparable. The zero value is the integer 0.
type ID struct {
	text   string
	isText bool
	number int64
}

// NoID is the id of the response to a message whose id is unknown.
var NoID = NumberID(-1)

// NumberID returns an integer as an id.
func NumberID(n int64) ID { return ID{number: n} }

// TextID returns a string as an id. It must be valid UTF-8.
func TextID(text string) ID { return ID{text: text, isText: true} }

// Number returns the integer, and false if the id is a string.
func (id ID) Number() (n int64, ok bool) { return id.number, !id.isText }

// Append appends the id as JSON.
func (id ID) Append(dst []byte) []byte {
	if id.isText {
		return AppendString(dst, id.text)
	}
	return strconv.AppendInt(dst, id.number, 10)
}

// String returns the id as JSON.
func (id ID) String() string { return string(id.Append(nil)) }

// Codes of errors.
const (
	// CodeInvalidRequest: the message is malformed or not allowed in this state.
	CodeInvalidRequest = -32600
	// CodeMethodNotFound: the method does not exist.
	CodeMethodNotFound = -32601
	// CodeInvalidParams: the parameters cannot be decoded.
	CodeInvalidParams = -32602
	// CodeInternal: any other error.
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
	// Code is one of the codes above, or another one of the peer.
	Code int `json:"code"`
	// Data is for programs: any value that encoding/json can encode; nil is absent. In
	// a parsed Error it is a json.RawMessage that does not alias the message.
	Data any `json:"data,omitempty"`
	// Message is for humans.
	Message string `json:"message"`
}

// Errorf returns an error with a formatted message.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string { return e.Message }
