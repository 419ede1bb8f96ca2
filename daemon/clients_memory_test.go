package daemon_test

import (
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/config"
)

// idleConnectionBytes is what an idle connection may cost, its session and
// everything else included.
const idleConnectionBytes = 60 << 10

// knock opens a websocket and a session over a bare socket, which costs the test
// next to nothing.
func knock(t *testing.T, address string) net.Conn {
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
	return conn
}

func TestAnIdleClientCostsLittle(t *testing.T) {
	const many = 200
	o := open(t, func(cfg *config.Config) { cfg.PingInterval = 0 })
	address := strings.TrimPrefix(o.urls[0], "ws://")
	for range 10 { // what the first ones cost is not theirs
		knock(t, address)
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
		knock(t, address)
	}
	each := (used() - before) / many
	t.Logf("%d bytes each", each)
	if each > idleConnectionBytes {
		t.Errorf("an idle connection costs %d bytes, and may cost %d", each, idleConnectionBytes)
	}
}
