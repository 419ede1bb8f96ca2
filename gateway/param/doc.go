// Package param decodes members of JSON-RPC parameters that several methods have in
// common, such as paths, and makes the errors that name them.
package param
