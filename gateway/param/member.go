package param

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/execwire/execwire/internal/jsonrpc"
)

// IsGiven reports whether a member is present and not null.
func IsGiven(member json.RawMessage) bool { return member != nil && string(member) != "null" }

// Take returns a value that is part of the message and clears it, so that the message
// can be freed.
func Take(value *json.RawMessage) json.RawMessage {
	raw := *value
	*value = nil
	return raw
}

// DecodeObject decodes a member that is an object. Errors name the full path of the
// member.
func DecodeObject(field string, raw json.RawMessage, into any) *jsonrpc.Error {
	if len(raw) > 0 && raw[0] == '[' {
		return Invalid(field, "is an array: give an object")
	}
	err := jsonrpc.DecodeParams(raw, into)
	if err == nil {
		return nil
	}
	if at, ok := err.Data.(jsonrpc.InvalidField); ok {
		if at.Field != "" && !strings.HasPrefix(at.Field, "[") {
			at.Field = "." + at.Field
		}
		at.Field = field + at.Field
		err.Data = at
	}
	return err
}

// NewError is an error about the member field.
func NewError(code int, field, message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: code, Message: message, Data: jsonrpc.InvalidField{Reason: "INVALID_FIELD", Field: field}}
}

// Invalid is the error for a member with an invalid value; problem completes the
// sentence "`name` …".
func Invalid(name, problem string) *jsonrpc.Error {
	return NewError(jsonrpc.CodeInvalidParams, name, "`"+name+"` "+problem)
}

// Missing is the error for an absent member.
func Missing(field, name string) *jsonrpc.Error {
	return NewError(jsonrpc.CodeInvalidParams, field+"."+name, "missing field `"+name+"`")
}

// Unknown is the error for a value that is not one of known.
func Unknown(field, text string, known ...string) *jsonrpc.Error {
	return NewError(jsonrpc.CodeInvalidParams, field, jsonrpc.UnknownVariant(text, known...).Error())
}

// Variant parses a parameter that is one of names, which stand for values.
func Variant[V any](into *V, text []byte, names []string, values ...V) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return jsonrpc.UnknownVariant(string(text), names...)
	}
	*into = values[i]
	return nil
}

// maxQuotedBytes bounds how much of the client's text an error repeats.
const maxQuotedBytes = 256

// Shorten cuts text that an error repeats.
func Shorten(text string) string { return jsonrpc.Shorten(text, maxQuotedBytes) }

// Milliseconds converts n, limited to the largest duration.
func Milliseconds(n uint64) time.Duration {
	const most = math.MaxInt64 / uint64(time.Millisecond) / 2
	return time.Duration(min(n, most)) * time.Millisecond
}
