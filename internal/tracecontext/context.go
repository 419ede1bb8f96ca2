package tracecontext

import "strings"

// Names of the two texts, as keys of metadata and as headers.
const (
	ParentKey = "traceparent"
	StateKey  = "tracestate"
)

// Context is a place in a trace. The zero value is none. Values are immutable
// and may be used concurrently.
type Context struct {
	parent string // in version 00
	state  string // of members that are separated by commas alone
}

// Parse reads a traceparent and a tracestate, of which the second is dropped
// without the first. What follows the four fields of a version that is not known
// yet is dropped, as the standard has it.
func Parse(parent, state string) Context {
	parent = strings.Trim(parent, " \t")
	if !isParent(parent) {
		return Context{}
	}
	return Context{parent: "00" + parent[2:parentBytes], state: cleanState(state)}
}

// IsZero reports whether c is no place.
func (c Context) IsZero() bool { return c.parent == "" }

// Parent returns the traceparent, "" for no place.
func (c Context) Parent() string { return c.parent }

// State returns the tracestate, "" if there is none.
func (c Context) State() string { return c.state }

// TraceID returns the trace in 32 hexadecimal digits, "" for no place.
func (c Context) TraceID() string {
	if c.IsZero() {
		return ""
	}
	return c.parent[traceAt:traceEnd]
}

// SpanID returns the caller's span in 16 hexadecimal digits, "" for no place.
func (c Context) SpanID() string {
	if c.IsZero() {
		return ""
	}
	return c.parent[spanAt:spanEnd]
}

// Where the fields of a traceparent are.
const (
	traceAt, traceEnd = 3, 35
	spanAt, spanEnd   = 36, 52
	flagsAt           = 53
	parentBytes       = 55
)

func isParent(text string) bool {
	switch {
	case len(text) < parentBytes, text[traceAt-1] != '-', text[spanAt-1] != '-', text[flagsAt-1] != '-':
		return false
	case !isHex(text[:traceAt-1]), !isHex(text[traceAt:traceEnd]), !isHex(text[spanAt:spanEnd]), !isHex(text[flagsAt:parentBytes]):
		return false
	case isZeros(text[traceAt:traceEnd]), isZeros(text[spanAt:spanEnd]):
		return false
	}
	switch text[:traceAt-1] {
	case "00":
		return len(text) == parentBytes
	case "ff":
		return false
	}
	return len(text) == parentBytes || text[parentBytes] == '-'
}

func isHex(text string) bool {
	return strings.Trim(text, "0123456789abcdef") == ""
}

func isZeros(text string) bool { return strings.Trim(text, "0") == "" }
