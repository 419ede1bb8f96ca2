package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
)

// Kind says what a message is.
type Kind int

// Kinds of messages.
const (
	Request      Kind = iota + 1 // a method and an id
	Notification                 // a method without an id
	Response                     // a result or an error, and an id
)

// Message is a message that was parsed. What is raw is a part of the parsed
// data, and as long valid.
type Message struct {
	// Kind is what the message is.
	Kind Kind
	// ID is that of a request or a response.
	ID ID
	// Method is that of a request or a notification; it may be empty.
	Method string
	// Params are the parameters as they came: a JSON value without blanks around
	// it, or nil if there are none.
	Params []byte
	// Result is that of a response without an error: a JSON value.
	Result []byte
	// Error is that of a response without a result.
	Error *Error
	// Trace is where the caller is in its trace, nil if it does not say.
	Trace *Trace
}

// Trace is a W3C trace context. Its texts are the peer's and were not looked at.
type Trace struct {
	Parent string // traceparent, "" if absent
	State  string // tracestate, "" if absent
}

// members are the values of the members of an envelope, nil where absent.
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

// Parse reads one message. It looks at all of data and keeps parts of it in the
// message. The error is for the peer: it says where and what is wrong, and
// follows the words "failed to parse JSON-RPC message from ...: ".
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

// call is a request or a notification.
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

// w3cTraceContext is a Trace as messages have it.
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

// responseError is an Error as messages have it.
type responseError struct {
	Code    int64           `param:"code"`
	Message string          `param:"message"`
	Data    json.RawMessage `param:"data,optional"`
}

// parseID reads a value that was scanned.
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
