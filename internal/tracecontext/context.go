package tracecontext

import "strings"

// Names of the fields, as metadata keys and as headers.
const (
	ParentKey = "traceparent"
	StateKey  = "tracestate"
)

// Context is a trace context. The zero value is none. Values are immutable and
// may be used concurrently.
type Context struct {
	parent string // in version 00
	state  string // separated by commas only
}

// Parse parses a traceparent and a tracestate. Without a valid traceparent the
// tracestate is dropped. For unknown versions, whatever follows the four fields
// is dropped, as the standard requires.
func Parse(parent, state string) Context {
	parent = strings.Trim(parent, " \t")
	if !isParent(parent) {
		return Context{}
	}
	return Context{parent: "00" + parent[2:parentBytes], state: cleanState(state)}
}

// IsZero reports whether c is empty.
func (c Context) IsZero() bool { return c.parent == "" }

// Parent returns the traceparent, or "".
func (c Context) Parent() string { return c.parent }

// State returns the tracestate, or "".
func (c Context) State() string { return c.state }

// TraceID returns the trace id in 32 hexadecimal digits, or "".
func (c Context) TraceID() string {
	if c.IsZero() {
		return ""
	}
	return c.parent[traceAt:traceEnd]
}

// SpanID returns the caller's span id in 16 hexadecimal digits, or "".
func (c Context) SpanID() string {
	if c.IsZero() {
		return ""
	}
	return c.parent[spanAt:spanEnd]
}

// Sampled reports whether the caller records the trace.
func (c Context) Sampled() bool {
	return !c.IsZero() && strings.IndexByte("13579bdf", c.parent[parentBytes-1]) >= 0
}

// Offsets of the fields of a traceparent.
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
