// Package jsonrpc parses and encodes the messages of the exec-server protocol, which
// are those of JSON-RPC 2.0 without the member "jsonrpc". It handles envelopes, ids,
// parameters and error objects, and has a transport over standard input and output. It
// knows no method.
//
// [Parse] rejects input that parsers interpret differently: more than one value,
// duplicate members at any depth, invalid UTF-8, lone surrogates. Its result aliases the
// input, so that a large message is in memory once. [DecodeParams] decodes parameters
// into a struct. The Append functions encode messages, without reflection on hot paths.
package jsonrpc
