package wsconn_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/testrace"
	"github.com/execwire/execwire/internal/wsconn"
)

// Both ends send messages of all sizes in order, some with Begin, call Prove all
// the time, and lose nothing; then one closes in the middle.
func TestStress_BothEnds(t *testing.T) {
	url := listen(t, wsconn.Options{PingInterval: time.Millisecond}, func(c *wsconn.Conn) { converse(t, c, nil) })
	for range 2 {
		c := dial(t, url, wsconn.DialOptions{Options: wsconn.Options{PingInterval: time.Millisecond}})
		enough := make(chan struct{})
		go func() {
			<-enough
			_ = c.Close(wsconn.CodeNormal, "")
		}()
		converse(t, c, enough)
	}
}

const conversation = 100 // messages that the client receives before it closes

// converse sends numbered messages on c until it ends, checks the order of
// received ones, and closes enough after receiving some.
func converse(t *testing.T, c *wsconn.Conn, enough chan<- struct{}) {
	var others sync.WaitGroup
	defer others.Wait()
	others.Go(func() { sendNumbered(c) })
	for range 3 {
		others.Go(func() {
			for c.Prove(t.Context()) == nil {
			}
		})
	}
	for i := 0; ; i++ {
		message, err := c.Receive()
		if err != nil {
			if want := endOf(enough); !errors.Is(err, want) {
				t.Errorf("after %d messages: %v, want %v", i, err, want)
			}
			break
		}
		if err := checkNumbered(message, i); err != nil {
			t.Error(err)
			break
		}
		if i == conversation && enough != nil {
			close(enough)
		}
	}
	_ = c.Close(wsconn.CodeNormal, "")
}

// endOf is the error that ends a conversation for the closing end, and for the
// other.
func endOf(enough chan<- struct{}) error {
	if enough != nil {
		return net.ErrClosed
	}
	return io.EOF
}

// sizeOf is the size of message i: most are small, some need many frames.
func sizeOf(i int) int { return 4 + (i*i*7919)%[]int{100, 3000, 70_000, 300_000}[i%4] }

func numbered(i int) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(i)), bytes.Repeat([]byte{byte(i)}, sizeOf(i)-4)...)
}

func checkNumbered(message []byte, i int) error {
	if !bytes.Equal(message, numbered(i)) {
		return fmt.Errorf("message %d of %d bytes is not the one of %d that was sent", i, len(message), sizeOf(i))
	}
	return nil
}

func sendNumbered(c *wsconn.Conn) {
	for i := 0; ; i++ {
		message := numbered(i)
		if i%5 != 0 {
			if c.Send(message) != nil {
				return
			}
			continue
		}
		w, err := c.Begin()
		if err != nil {
			return
		}
		half := len(message) / 2
		_, err = w.Write(message[:half])
		_, err2 := w.Write(message[half:])
		if errors.Join(err, err2, w.Close()) != nil {
			return
		}
	}
}

// idleBytes is the maximum memory of an idle server connection, with its
// goroutine and what net/http keeps.
const idleBytes = 60 << 10

func TestIdleConnection_Memory(t *testing.T) {
	testrace.Slow(t)
	const connections = 1000
	ready := make(chan struct{}, connections)
	url := listen(t, wsconn.Options{PingInterval: wsconn.DefaultPingInterval, DeadAfter: wsconn.DefaultDeadAfter}, func(c *wsconn.Conn) {
		for {
			message, err := c.Receive()
			if err != nil {
				return
			}
			if c.Send(message) == nil {
				ready <- struct{}{}
			}
		}
	})
	before := inUse()
	clients := make([]net.Conn, 0, connections)
	for range connections {
		c := raw(t, url)
		c.send(t, frame(final|text, "hello"))
		c.expect(t, final|text, "hello")
		c.in = nil // would count for the client
		clients = append(clients, c)
		<-ready
	}
	each := (inUse() - before) / connections
	t.Logf("%d bytes for each connection, with its client", each)
	if each > idleBytes {
		t.Errorf("a connection costs %d bytes, more than %d", each, idleBytes)
	}
	for _, c := range clients {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func inUse() uint64 {
	runtime.GC()
	runtime.GC() // empties the pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
