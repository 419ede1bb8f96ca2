package wsconn

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"

	"github.com/coder/websocket"
)

// Sizes of the buffers between the library and the wire. Every idle connection
// keeps the read buffer; larger reads bypass it. Only close frames use the write
// buffer.
const (
	readAheadBytes    = 1 << 10
	controlFrameBytes = maxHeader + maxControlPayload
)

// Accept upgrades the connection of r to a websocket, without compression or
// subprotocol. Checking Origin and authorization is up to the caller. On failure
// the response has been sent.
func Accept(w http.ResponseWriter, r *http.Request, o Options) (*Conn, error) {
	made := new(*Conn)
	h := &hijacker{ResponseWriter: w, peer: r.RemoteAddr, options: o.withDefaults(), result: made}
	ws, err := websocket.Accept(h, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // of the Origin
		CompressionMode:    websocket.CompressionDisabled,
		// a method value of h would retain the request and its buffers
		OnPingReceived: func(_ context.Context, payload []byte) bool { return (*made).onPing(payload) },
		OnPongReceived: func(_ context.Context, payload []byte) { (*made).pings.pong(payload) },
	})
	if err != nil {
		return nil, err
	}
	return (*made).start(ws), nil
}

// hijacker gives the library a wire instead of the connection.
type hijacker struct {
	http.ResponseWriter
	peer    string
	options Options
	result  **Conn // set by Hijack
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w := newWire(conn, withBuffered(buffered.Reader, conn), conn, false, h.options)
	*h.result = newConn(w, h.peer, h.options)
	return w, bufio.NewReadWriter(bufio.NewReaderSize(w, readAheadBytes), bufio.NewWriterSize(w, controlFrameBytes)), nil
}

// withBuffered returns a reader of the data already buffered, followed by conn.
func withBuffered(ahead *bufio.Reader, conn io.Reader) io.Reader {
	if ahead.Buffered() == 0 {
		return conn
	}
	early, _ := ahead.Peek(ahead.Buffered()) // cannot fail for buffered data
	return io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn)
}
