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
	"time"

	"github.com/execwire/execwire/gateway/wsserver"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/wsconn"
)

// dialTestServer serves a websocket on loopback and attaches a client.
func dialTestServer(b *testing.B) *wsconn.Conn {
	b.Helper()
	srv := newTestServer(b)
	gateway, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	handler := wsserver.NewHandler(wsserver.HTTPConfig{
		Authenticate: func(*http.Request) (auth.Caller, *wsserver.Refusal) { return auth.Caller{}, nil },
		Serve: func(ctx context.Context, _ auth.Caller, conn *wsconn.Conn) {
			_ = gateway.Serve(ctx, "p", srv.channel, conn)
		},
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	web := wsserver.NewHTTPServer(handler, time.Minute, slog.New(slog.DiscardHandler))
	var serving sync.WaitGroup
	serving.Go(func() { _ = web.Serve(wsconn.Tune(listener, 0, 0)) })
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
	send(b, conn, `{"id":0,"method":"initialize","params":{"clientName":"bench"}}`)
	receiveUntil(b, conn, `"id":0`)
	send(b, conn, `{"method":"initialized"}`)
	return conn
}

func send(b *testing.B, conn *wsconn.Conn, text string) {
	b.Helper()
	if err := conn.Send([]byte(text)); err != nil {
		b.Fatal(err)
	}
}

// receiveUntil reads until a message contains the text.
func receiveUntil(b *testing.B, conn *wsconn.Conn, text string) {
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
	conn := dialTestServer(b)
	const size = 256 << 20
	b.SetBytes(size)
	for i := 0; b.Loop(); i++ {
		id := fmt.Sprint("p", i)
		send(b, conn, startText(id, fmt.Sprintf(`"head","-c","%d","/dev/zero"`, size)))
		receiveUntil(b, conn, `{"method":"process/closed"`)
	}
}

// BenchmarkStart runs /bin/true from start to close, one after the other.
func BenchmarkStart(b *testing.B) {
	conn := dialTestServer(b)
	for i := 0; b.Loop(); i++ {
		send(b, conn, startText(fmt.Sprint("p", i), `"/bin/true"`))
		receiveUntil(b, conn, `{"method":"process/closed"`)
	}
}

// BenchmarkStartMany runs /bin/true with 64 in flight.
func BenchmarkStartMany(b *testing.B) {
	conn := dialTestServer(b)
	n := 0
	for range 64 {
		send(b, conn, startText(fmt.Sprint("p", n), `"/bin/true"`))
		n++
	}
	for b.Loop() {
		receiveUntil(b, conn, `{"method":"process/closed"`)
		send(b, conn, startText(fmt.Sprint("p", n), `"/bin/true"`))
		n++
	}
	for range 64 {
		receiveUntil(b, conn, `{"method":"process/closed"`)
	}
}

// BenchmarkEcho writes a byte and waits for its echo.
func BenchmarkEcho(b *testing.B) {
	conn := dialTestServer(b)
	send(b, conn, startText("p", `"cat"`))
	receiveUntil(b, conn, `"id":1`)
	for b.Loop() {
		send(b, conn, `{"id":2,"method":"process/write","params":{"processId":"p","chunk":"eA=="}}`)
		receiveUntil(b, conn, `{"method":"process/output"`)
	}
}

// BenchmarkSmallRequest is the round trip of a request that does nothing.
func BenchmarkSmallRequest(b *testing.B) {
	conn := dialTestServer(b)
	for b.Loop() {
		send(b, conn, `{"id":2,"method":"environment/status"}`)
		receiveUntil(b, conn, `{"id":2`)
	}
}
