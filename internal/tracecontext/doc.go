// Package tracecontext parses the traceparent and tracestate of W3C Trace Context
// (https://www.w3.org/TR/trace-context/). They are untrusted: what is malformed
// is dropped without an error, and the result is short, printable and safe for
// metadata and logs.
package tracecontext
