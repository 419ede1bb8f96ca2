package wsconn_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/wsconn"
)

// drainEnv makes the test binary a client that discards everything the server at
// that URL sends.
const drainEnv = "WSCONN_TEST_DRAIN"

func drainURL(address string) {
	conn, err := dialRaw(address)
	if err != nil {
		panic(err)
	}
	if _, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{conn.in}, make([]byte, 256<<10)); err != nil {
		panic(err)
	}
}

// sender sends n messages; its result ends the connection.
type sender func(w http.ResponseWriter, r *http.Request, message []byte, n int) error

func ours(w http.ResponseWriter, r *http.Request, message []byte, n int) error {
	c, err := wsconn.Accept(w, r, wsconn.Options{})
	if err != nil {
		return err
	}
	for range n {
		if err := c.Send(message); err != nil {
			return err
		}
	}
	return c.Close(wsconn.CodeNormal, "")
}

func bare(w http.ResponseWriter, r *http.Request, message []byte, n int) error {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return err
	}
	for range n {
		if err := c.Write(context.Background(), websocket.MessageText, message); err != nil {
			return err
		}
	}
	return c.CloseNow()
}

// BenchmarkSend reports the CPU time of the server only: the client is another
// process.
func BenchmarkSend(b *testing.B) {
	for _, size := range []int{100, 8 << 10, 32 << 10, 1 << 20} {
		for name, send := range map[string]sender{"ours": ours, "bare": bare} {
			b.Run(strconv.Itoa(size)+"/"+name, func(b *testing.B) { benchmarkSend(b, send, size) })
		}
	}
}

func benchmarkSend(b *testing.B, send sender, size int) {
	message := []byte(strings.Repeat("x", size))
	sent := make(chan error, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { sent <- send(w, r, message, b.N) }))
	defer s.Close()
	b.SetBytes(int64(size))
	client := exec.Command(os.Args[0])
	client.Env = append(os.Environ(), drainEnv+"="+s.Listener.Addr().String())
	client.Stderr = os.Stderr
	before := processorSeconds(b)
	if err := client.Start(); err != nil {
		b.Fatal(err)
	}
	if err := client.Wait(); err != nil {
		b.Fatal(err)
	}
	if err := <-sent; err != nil {
		b.Fatal(err)
	}
	b.ReportMetric((processorSeconds(b)-before)/(float64(b.N)*float64(size)/(1<<30)), "cpu-s/GiB")
}

func processorSeconds(b *testing.B) float64 {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

// BenchmarkRoundTrip sends one small message at a time back and forth.
func BenchmarkRoundTrip(b *testing.B) {
	for name, serve := range map[string]http.HandlerFunc{
		"ours": func(w http.ResponseWriter, r *http.Request) {
			if c, err := wsconn.Accept(w, r, wsconn.Options{}); err == nil {
				echo(c)
				_ = c.Close(wsconn.CodeNormal, "")
			}
		},
		"bare": func(w http.ResponseWriter, r *http.Request) {
			c, err := websocket.Accept(w, r, nil)
			for err == nil {
				var message []byte
				if _, message, err = c.Read(context.Background()); err == nil {
					err = c.Write(context.Background(), websocket.MessageText, message)
				}
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			s := httptest.NewServer(serve)
			defer s.Close()
			c := raw(b, "ws://"+s.Listener.Addr().String())
			message := frame(final|text, strings.Repeat("x", 100))
			for b.Loop() {
				c.send(b, message)
				if _, _, err := c.next(); err != nil {
					b.Fatal(err)
				}
			}
			c.send(b, frame(final|closing, closePayload(1000, "")))
		})
	}
}

// BenchmarkReceive receives masked messages of one size from one client.
func BenchmarkReceive(b *testing.B) {
	for _, size := range []int{100, 8 << 10, 64 << 10, 1 << 20} {
		b.Run(strconv.Itoa(size), func(b *testing.B) { benchmarkReceive(b, size) })
	}
}

func benchmarkReceive(b *testing.B, size int) {
	ended := make(chan error, 1)
	url := listen(b, wsconn.Options{}, func(c *wsconn.Conn) {
		for {
			if _, err := c.Receive(); err != nil {
				ended <- err
				return
			}
		}
	})
	c := raw(b, url)
	sent := max(1, 64<<10/size) // messages in one write
	frames := bytes.Repeat(frame(final|text, strings.Repeat("x", size)), sent)
	b.SetBytes(int64(sent * size))
	for b.Loop() {
		c.send(b, frames)
	}
	c.send(b, normalClose)
	if err := <-ended; err != io.EOF {
		b.Fatal(err)
	}
}
