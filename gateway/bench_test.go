package gateway

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/execwire/execwire/gateway/wsserver"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/wsconn"
)

// dialCore serves a core over a websocket on loopback and attaches a client.
func dialCore(b *testing.B) *wsconn.Conn {
	b.Helper()
	core := newCore(b)
	gateway, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	handler := wsserver.NewHandler(wsserver.HTTPConfig{
		Authenticate: func(*http.Request) (auth.Caller, *wsserver.Refusal) { return auth.Caller{}, nil },
		Serve: func(ctx context.Context, _ auth.Caller, conn *wsconn.Conn) {
			_ = gateway.Serve(ctx, "p", core.channel, conn)
		},
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	web := wsserver.NewHTTPServer(handler, slog.New(slog.DiscardHandler))
	var serving sync.WaitGroup
	serving.Go(func() { _ = web.Serve(wsconn.Tune(listener, wsconn.Tuning{})) })
	conn, err := wsconn.Dial(b.Context(), "ws://"+listener.Addr().String(), wsconn.DialOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = conn.Close(1000, "")
		_ = handler.Shutdown(context.Background())
		_ = web.Close()
		serving.Wait()
	})
	say(b, conn, `{"id":0,"method":"initialize","params":{"clientName":"bench"}}`)
	hear(b, conn, `"id":0`)
	say(b, conn, `{"method":"initialized"}`)
	return conn
}

func say(b *testing.B, conn *wsconn.Conn, text string) {
	b.Helper()
	if err := conn.Send([]byte(text)); err != nil {
		b.Fatal(err)
	}
}

// hear reads until a message has the text.
func hear(b *testing.B, conn *wsconn.Conn, text string) {
	b.Helper()
	for {
		m, err := conn.Receive()
		if err != nil {
			b.Fatal(err)
		}
		if bytes.Contains(m[:min(60, len(m))], []byte(text)) {
			return
		}
	}
}

func startText(id string, argv string) string {
	return fmt.Sprintf(`{"id":1,"method":"process/start","params":{"processId":%q,"argv":[%s],"cwd":"/","env":{"PATH":"/usr/bin:/bin"},"tty":false,"pipeStdin":true}}`, id, argv)
}

// BenchmarkOutput moves 256 MiB of one process.
func BenchmarkOutput(b *testing.B) {
	conn := dialCore(b)
	const size = 256 << 20
	b.SetBytes(size)
	for i := 0; b.Loop(); i++ {
		id := fmt.Sprint("p", i)
		say(b, conn, startText(id, fmt.Sprintf(`"head","-c","%d","/dev/zero"`, size)))
		hear(b, conn, `{"method":"process/closed"`)
	}
}

// BenchmarkStart runs /bin/true from start to close, one after the other.
func BenchmarkStart(b *testing.B) {
	conn := dialCore(b)
	for i := 0; b.Loop(); i++ {
		say(b, conn, startText(fmt.Sprint("p", i), `"/bin/true"`))
		hear(b, conn, `{"method":"process/closed"`)
	}
}

// BenchmarkStartMany runs /bin/true with 64 in flight.
func BenchmarkStartMany(b *testing.B) {
	conn := dialCore(b)
	n := 0
	for range 64 {
		say(b, conn, startText(fmt.Sprint("p", n), `"/bin/true"`))
		n++
	}
	for b.Loop() {
		hear(b, conn, `{"method":"process/closed"`)
		say(b, conn, startText(fmt.Sprint("p", n), `"/bin/true"`))
		n++
	}
	for range 64 {
		hear(b, conn, `{"method":"process/closed"`)
	}
}

// BenchmarkEcho writes a byte and waits for its echo.
func BenchmarkEcho(b *testing.B) {
	conn := dialCore(b)
	say(b, conn, startText("p", `"cat"`))
	hear(b, conn, `"id":1`)
	for b.Loop() {
		say(b, conn, `{"id":2,"method":"process/write","params":{"processId":"p","chunk":"eA=="}}`)
		hear(b, conn, `{"method":"process/output"`)
	}
}

// BenchmarkSmallRequest is the round trip of a request that does nothing.
func BenchmarkSmallRequest(b *testing.B) {
	conn := dialCore(b)
	for b.Loop() {
		say(b, conn, `{"id":2,"method":"environment/status"}`)
		hear(b, conn, `{"id":2`)
	}
}
