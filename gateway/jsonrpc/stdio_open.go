package jsonrpc

import "os"

// OpenStdio returns a transport over the standard input and output of the
// program.
func OpenStdio(options StdioOptions) (*Stdio, error) {
	return NewStdio(os.Stdin, os.Stdout, options), nil
}
