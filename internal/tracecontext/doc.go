// Package tracecontext reads where a caller is in its trace, as W3C Trace
// Context has it (https://www.w3.org/TR/trace-context/): the texts traceparent
// and tracestate. They are a stranger's, so what is not as it has to be is
// dropped and never an error, and what is left is short, printable and fit for
// metadata and logs.
package tracecontext
