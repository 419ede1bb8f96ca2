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

// Sizes of the buffers between the library and the wire. Reads of more bypass
// the first, which every idle connection keeps; only close frames go through the
// second.
const (
	readAheadBytes    = 1 << 10
	controlFrameBytes = maxHeader + maxControlPayload
)

// Accept makes a websocket of the connection that r came on, without
// compression and without a subprotocol. It looks at no Origin: that is for the
// caller, as is who may come. If it fails it has answered r.
func Accept(w http.ResponseWriter, r *http.Request, o Options) (*Conn, error) {
	o, err := o.withDefaults()
	if err != nil {
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return nil, err
	}
	made := new(*Conn)
	h := &hijacker{ResponseWriter: w, peer: r.RemoteAddr, options: o, made: made}
	ws, err := websocket.Accept(h, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // of the Origin
		CompressionMode:    websocket.CompressionDisabled,
		// Not by way of h, which would keep the request and its buffers.
		OnPingReceived: func(_ context.Context, payload []byte) bool { return (*made).pinged(payload) },
		OnPongReceived: func(_ context.Context, payload []byte) { (*made).prover.pong(payload) },
	})
	if err != nil {
		return nil, err
	}
	return (*made).begin(ws), nil
}

// hijacker gives the library our wire in place of the connection.
type hijacker struct {
	http.ResponseWriter
	peer    string
	options Options
	made    **Conn // set once it is hijacked
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w := newWire(conn, afterwards(buffered.Reader, conn), conn, false, h.options)
	*h.made = newConn(w, h.peer, h.options)
	return w, bufio.NewReadWriter(bufio.NewReaderSize(w, readAheadBytes), bufio.NewWriterSize(w, controlFrameBytes)), nil
}

// afterwards reads what was read ahead, then from conn.
func afterwards(ahead *bufio.Reader, conn io.Reader) io.Reader {
	if ahead.Buffered() == 0 {
		return conn
	}
	early, _ := ahead.Peek(ahead.Buffered()) // never fails for what is buffered
	return io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn)
}
