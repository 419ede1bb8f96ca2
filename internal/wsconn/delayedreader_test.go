package wsconn

import (
	"io"
	"net"
	"testing"
)

// What a server sends first is received after the first write; Close unblocks a
// waiting read.
func TestDelayedReader_WaitsForFirstWrite(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	conn := newDelayedReader(near)
	received := make(chan string, 1)
	go func() { _, _ = far.Write([]byte("hello")) }() // before the first write
	go func() {
		text := make([]byte, 5)
		n, _ := io.ReadFull(conn, text)
		select {
		case <-conn.wrote:
			received <- string(text[:n])
		default:
			received <- "too early"
		}
	}()
	asked := make(chan string, 1)
	go func() {
		text := make([]byte, 3)
		_, _ = io.ReadFull(far, text)
		asked <- string(text)
	}()
	if _, err := conn.Write([]byte("ask")); err != nil {
		t.Fatal(err)
	}
	if got := <-asked; got != "ask" {
		t.Errorf("it was asked %q", got)
	}
	if got := <-received; got != "hello" {
		t.Errorf("received %q", got)
	}

	near, _ = net.Pipe()
	conn = newDelayedReader(near)
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		ended <- err
	}()
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a connection that was closed is read")
	}
}
