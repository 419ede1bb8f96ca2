package daemon_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testrace"
	"github.com/execwire/execwire/internal/wsconn"
)

// idleConnectionBytes bounds the memory of an idle connection with its session: 30 KiB of
// stacks, and as much for everything else.
const idleConnectionBytes = 30<<10 + 30<<10

// dialRaw opens a websocket and a session over a plain socket, which costs the test little
// memory, and reads files.
func dialRaw(t *testing.T, address string, files ...string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	exchange := func(request, answer string) {
		t.Helper()
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		received := ""
		for buffer := make([]byte, 4096); !strings.Contains(received, answer); {
			n, err := conn.Read(buffer)
			if err != nil {
				t.Fatalf("%v after %q", err, received)
			}
			received += string(buffer[:n])
		}
	}
	frame := func(text string) string {
		header := []byte{0x81, 0x80 | byte(len(text))}
		if len(text) > 125 { // the name of a directory varies in length
			header = []byte{0x81, 0x80 | 126, byte(len(text) >> 8), byte(len(text))}
		}
		return string(append(header, 0, 0, 0, 0)) + text
	}
	exchange("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", "\r\n\r\n")
	exchange(frame(`{"id":1,"method":"initialize","params":{"clientName":"c"}}`), `"sessionId"`)
	exchange(frame(`{"method":"initialized"}`)+frame(`{"id":2,"method":"environment/status"}`), `"ready"`)
	for _, file := range files {
		exchange(frame(`{"id":3,"method":"fs/readFile","params":{"path":"`+file+`"}}`), `"}}`)
	}
	return conn
}

func TestClients_Idle_UseLittleMemory(t *testing.T) {
	testrace.MeasuresMemory(t)
	const many = 200
	o := open(t, func(cfg *config.Config) { cfg.PingInterval = 0 })
	address := strings.TrimPrefix(o.urls[0], "ws://")
	file := filepath.Join(t.TempDir(), "f") // so that responses are large
	if err := os.WriteFile(file, make([]byte, 100<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 10 { // initialization must not count
		dialRaw(t, address, file)
	}
	used := func() uint64 {
		runtime.GC()
		runtime.GC() // the first shrinks stacks, the second empties pools
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc + stats.StackInuse
	}
	before := used()
	for range many {
		dialRaw(t, address, file)
	}
	each := (used() - before) / many
	t.Logf("%d bytes each", each)
	if each > idleConnectionBytes {
		t.Errorf("an idle connection uses %d bytes, want at most %d", each, idleConnectionBytes)
	}
}

// A budget bounds the memory of unfinished messages of all clients. A client beyond it is
// closed with the reason, and others are served.
func TestClients_UnfinishedMessages_AreBounded(t *testing.T) {
	const message, many = 100 << 10, 6 // each uses 112 KiB, of which 64 KiB do not count
	o := open(t, func(cfg *config.Config) { cfg.Request, cfg.IncomingTotal, cfg.IncomingRate = 128<<10, many*48<<10, 1 })
	begin := func() *rpc {
		c, err := o.dial(wsconn.DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w, err := c.conn.Begin()
		if err == nil {
			_, err = w.Write(make([]byte, message))
		}
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for range many {
		c := begin()
		received := make(chan struct{})
		go func() { // reads the response
			defer close(received)
			_, _ = c.conn.Receive()
		}()
		if err := c.conn.Prove(o.ctx); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.conn.Close(0, "")
			<-received
		})
	}
	refused := begin()
	if answer, err := refused.conn.Receive(); !strings.Contains(string(answer), "incoming_bytes_total") {
		t.Errorf("one more received %s, %v", answer, err)
	}
	var closed *wsconn.ClosedError
	if _, err := refused.conn.Receive(); !errors.As(err, &closed) || closed.Code != 1013 {
		t.Errorf("one more ended with %v", err)
	}
	o.dialSession(nil).ask("environment/status", nil)
}
