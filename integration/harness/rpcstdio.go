package harness

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"
)

// StdioConn is a connection over the standard streams of a server.
type StdioConn struct {
	server *Command
	Stdin  io.WriteCloser
	stdout io.Closer
	lines  *bufio.Reader
}

// StdioClient runs a server that only serves its standard streams.
func StdioClient(t testing.TB) (*Command, *RPCClient) { return StdioClientAt(t, "stdio") }

// StdioClientAt is StdioClient for one of the URLs of stdio.
func StdioClientAt(t testing.TB, url string) (*Command, *RPCClient) {
	t.Helper()
	c := NewCommand("serve", "--listen", url)
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Launch(t)
	return c, NewRPCClient(t, &StdioConn{server: c, Stdin: stdin, stdout: stdout, lines: bufio.NewReader(stdout)}, nil)
}

// Send sends a message as one line.
func (l *StdioConn) Send(message []byte) error {
	_, err := l.Stdin.Write(append(bytes.Clone(message), '\n'))
	return err
}

// Receive returns the next line.
func (l *StdioConn) Receive() (RPCFrame, error) {
	line, err := l.lines.ReadBytes('\n')
	if err != nil {
		if len(line) > 0 {
			err = errors.New("the last line has no end")
		}
		return RPCFrame{}, err
	}
	return RPCFrame{Kind: "text", Data: bytes.TrimSuffix(line, []byte("\n"))}, nil
}

// EndInput closes the server's stdin.
func (l *StdioConn) EndInput() error { return l.Stdin.Close() }

// Drop closes both pipes to the server.
func (l *StdioConn) Drop() {
	_ = l.EndInput()
	_ = l.stdout.Close()
}
