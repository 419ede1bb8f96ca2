package wsconn

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"

	"github.com/coder/websocket"
)

// Accept upgrades the connection of r to a websocket, without compression or
// subprotocol. Checking Origin and authorization is up to the caller. On failure
// the response has been sent.
func Accept(w http.ResponseWriter, r *http.Request, o Options) (*Conn, error) {
	h := &hijacker{ResponseWriter: w}
	ws, err := websocket.Accept(h, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // of the Origin
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, err
	}
	_ = ws.CloseNow() // closes nothing: the handshake is all that the library does
	return newConn(h.conn, h.in, h.conn, false, hasTLS(h.conn), r.RemoteAddr, o.withDefaults()).watch(), nil
}

// hijacker keeps the connection that the library takes over.
type hijacker struct {
	http.ResponseWriter
	conn net.Conn  // set by Hijack
	in   io.Reader // of conn; set by Hijack
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.conn, h.in = conn, withBuffered(buffered.Reader, conn)
	buffered.Reader.Reset(nil)
	return unclosable{conn}, buffered, nil
}

// unclosable is a connection that the library cannot close.
type unclosable struct{ net.Conn }

// Close implements net.Conn.
func (unclosable) Close() error { return nil }

// withBuffered returns a reader of the data already buffered, followed by conn.
func withBuffered(ahead *bufio.Reader, conn io.Reader) io.Reader {
	if ahead.Buffered() == 0 {
		return conn
	}
	early, _ := ahead.Peek(ahead.Buffered()) // cannot fail for buffered data
	return io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn)
}
