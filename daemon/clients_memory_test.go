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
	"github.com/execwire/execwire/internal/wsconn"
)

// idleConnectionBytes is what an idle connection may cost, its session and
// everything else included: 30 KiB of stacks, and as much of the rest.
const idleConnectionBytes = 30<<10*stackFactor + 30<<10

// knock opens a websocket and a session over a bare socket, which costs the test
// next to nothing, and reads files.
func knock(t *testing.T, address string, files ...string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(hang))
	exchange := func(say, answer string) {
		t.Helper()
		if _, err := io.WriteString(conn, say); err != nil {
			t.Fatal(err)
		}
		told := ""
		for buffer := make([]byte, 4096); !strings.Contains(told, answer); {
			n, err := conn.Read(buffer)
			if err != nil {
				t.Fatalf("%v after %q", err, told)
			}
			told += string(buffer[:n])
		}
	}
	frame := func(text string) string { return "\x81" + string([]byte{0x80 | byte(len(text)), 0, 0, 0, 0}) + text }
	exchange("GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", "\r\n\r\n")
	exchange(frame(`{"id":1,"method":"initialize","params":{"clientName":"c"}}`), `"sessionId"`)
	exchange(frame(`{"method":"initialized"}`)+frame(`{"id":2,"method":"environment/status"}`), `"ready"`)
	for _, file := range files {
		exchange(frame(`{"id":3,"method":"fs/readFile","params":{"path":"`+file+`"}}`), `"}}`)
	}
	return conn
}

func TestAnIdleClientCostsLittle(t *testing.T) {
	const many = 200
	o := open(t, func(cfg *config.Config) { cfg.PingInterval = 0 })
	address := strings.TrimPrefix(o.urls[0], "ws://")
	file := filepath.Join(t.TempDir(), "f") // of which the answers are no small ones
	if err := os.WriteFile(file, make([]byte, 100<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 10 { // what the first ones cost is not theirs
		knock(t, address, file)
	}
	used := func() uint64 {
		runtime.GC()
		runtime.GC() // stacks shrink, and pools are emptied by the second
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc + stats.StackInuse
	}
	before := used()
	for range many {
		knock(t, address, file)
	}
	each := (used() - before) / many
	t.Logf("%d bytes each", each)
	if each > idleConnectionBytes {
		t.Errorf("an idle connection costs %d bytes, and may cost %d", each, idleConnectionBytes)
	}
}

// Clients that begin large messages and do not end them take no more than they
// may all together: one more is told so, and others are served.
func TestLargeMessagesOfAllClientsAreBounded(t *testing.T) {
	const message, many = 100 << 10, 4 // each takes 128 KiB, of which 64 KiB do not count
	o := open(t, func(cfg *config.Config) { cfg.Request, cfg.IncomingTotal, cfg.IncomingRate = 128<<10, many*64<<10, 1 })
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
		go func() { // which takes the answer to the question
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
		t.Errorf("one more was told %s, %v", answer, err)
	}
	var closed *wsconn.ClosedError
	if _, err := refused.conn.Receive(); !errors.As(err, &closed) || closed.Code != 1013 {
		t.Errorf("one more ended with %v", err)
	}
	o.meet(nil).ask("environment/status", nil)
}
