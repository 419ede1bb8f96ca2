package integration

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"
)

// stdioLink is a connection over the standard streams of a server.
type stdioLink struct {
	server *command
	stdin  io.WriteCloser
	stdout io.Closer
	lines  *bufio.Reader
}

// stdioClient runs a server that has no other door than its standard streams.
func stdioClient(t testing.TB) (*command, *rpcClient) { return stdioClientAt(t, "stdio") }

// stdioClientAt is stdioClient for one of the URLs of that door.
func stdioClientAt(t testing.TB, url string) (*command, *rpcClient) {
	t.Helper()
	c := newCommand("serve", "--listen", url)
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.launch(t)
	return c, newRPCClient(t, &stdioLink{server: c, stdin: stdin, stdout: stdout, lines: bufio.NewReader(stdout)}, nil)
}

func (l *stdioLink) send(message []byte) error {
	_, err := l.stdin.Write(append(bytes.Clone(message), '\n'))
	return err
}

func (l *stdioLink) receive() (rpcFrame, error) {
	line, err := l.lines.ReadBytes('\n')
	if err != nil {
		if len(line) > 0 {
			err = errors.New("the last line has no end")
		}
		return rpcFrame{}, err
	}
	return rpcFrame{kind: "text", data: bytes.TrimSuffix(line, []byte("\n"))}, nil
}

// endInput closes the server's stdin.
func (l *stdioLink) endInput() error { return l.stdin.Close() }

func (l *stdioLink) drop() {
	_ = l.endInput()
	_ = l.stdout.Close()
}
