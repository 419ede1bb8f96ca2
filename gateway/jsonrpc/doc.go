// Package jsonrpc has the messages of the exec-server protocol: one JSON
// object each, in the manner of JSON-RPC 2.0 but without the "jsonrpc" member.
// It reads and writes envelopes, ids, parameters and error objects, and carries
// them over standard input and output. It knows no method.
//
// [Parse] refuses what two readers could understand differently: more than one
// value, duplicate members at any depth, invalid UTF-8, lone surrogates. What it
// accepts aliases its input, so that a big message is in memory once.
// [DecodeParams] reads parameters into a struct, and the functions called Append
// write messages without reflection where it matters.
package jsonrpc
