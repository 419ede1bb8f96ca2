package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// The websocket form of the floor: frames with the messages of the JSON-RPC dialect.

const websocketGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

// floorConn is a websocket with as little cost as possible. One goroutine may read.
type floorConn struct {
	net.Conn
	in   *bufio.Reader
	mask byte   // 0x80 at a client. The key is zero, which costs nothing
	data []byte // of the last message

	sending sync.Mutex
}

// next returns the next message, valid until the next call. Messages are whole frames.
func (c *floorConn) next() ([]byte, error) {
	var h [8]byte
	if _, err := io.ReadFull(c.in, h[:2]); err != nil {
		return nil, err
	}
	opcode, masked, n := h[0]&15, h[1]&0x80 != 0, int(h[1]&127)
	var err error
	switch n {
	case 126:
		_, err = io.ReadFull(c.in, h[:2])
		n = int(binary.BigEndian.Uint16(h[:2]))
	case 127:
		_, err = io.ReadFull(c.in, h[:8])
		n = int(binary.BigEndian.Uint64(h[:8]))
	}
	if err == nil && masked {
		_, err = io.ReadFull(c.in, h[:4])
	}
	if err != nil {
		return nil, err
	}
	if opcode == harness.OpClose {
		return nil, io.EOF
	}
	if cap(c.data) < n {
		c.data = make([]byte, n)
	}
	c.data = c.data[:n]
	_, err = io.ReadFull(c.in, c.data)
	return c.data, err
}

// send sends a message as one frame, by one system call.
func (c *floorConn) send(message []byte) error {
	header := append([]byte{0x80 | harness.OpText}, harness.FrameLength(c.mask, len(message))...)
	if c.mask != 0 {
		header = append(header, 0, 0, 0, 0)
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	_, err := (&net.Buffers{header, message}).WriteTo(c.Conn)
	return err
}

// frameStream carries a stream of bytes in such messages.
type frameStream struct {
	*floorConn
	left []byte
}

func (s *frameStream) Read(p []byte) (int, error) {
	for len(s.left) == 0 {
		var err error
		if s.left, err = s.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.left)
	s.left = s.left[n:]
	return n, nil
}

func (s *frameStream) Write(p []byte) (int, error) { return len(p), s.send(p) }

// dialFloorConn connects to HOST:PORT/PATH.
func dialFloorConn(ctx context.Context, url string) (*floorConn, error) {
	address, path, _ := strings.Cut(url, "/")
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &floorConn{Conn: conn, in: bufio.NewReaderSize(conn, floorBuffer), mask: 0x80}
	fmt.Fprintf(conn, "GET /%s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", path, address)
	response, err := http.ReadResponse(c.in, nil)
	if err == nil && response.StatusCode != http.StatusSwitchingProtocols {
		err = fmt.Errorf("%s answered %s", url, response.Status)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// accepted is a listener of connections that another listener accepted.
type accepted struct {
	net.Listener
	conns chan net.Conn
}

func (a accepted) Accept() (net.Conn, error) { return <-a.conns, nil }

// serveFloorSocket serves websockets, files by HTTP GET below /files, and gRPC in the frames
// of a websocket.
func serveFloorSocket(l net.Listener, server *grpc.Server) error {
	inFrames := accepted{Listener: l, conns: make(chan net.Conn)}
	go func() { _ = server.Serve(inFrames) }() // until the end of this program
	ways := map[string]func(*floorConn) error{
		"run": floorSocketRun, "terminal": floorSocketTerminal, "file": floorSocketFile, "echo": floorSocketEcho,
	}
	mux := http.NewServeMux()
	mux.Handle("/files/", http.StripPrefix("/files", http.FileServer(http.Dir("/"))))
	mux.HandleFunc("/grpc", func(w http.ResponseWriter, r *http.Request) {
		if c, err := upgrade(w, r); err == nil {
			inFrames.conns <- &frameStream{floorConn: c}
		}
	})
	for name, serve := range ways {
		mux.HandleFunc("/"+name, func(w http.ResponseWriter, r *http.Request) {
			if c, err := upgrade(w, r); err == nil {
				_ = serve(c) // until the client closes
				_ = c.Close()
			}
		})
	}
	mux.HandleFunc("/hop/", func(w http.ResponseWriter, r *http.Request) {
		far, err := dialFloorConn(r.Context(), strings.TrimPrefix(r.URL.Path, "/hop/"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		if near, err := upgrade(w, r); err == nil {
			hop(near, far)
		}
	})
	return http.Serve(l, mux)
}

func upgrade(w http.ResponseWriter, r *http.Request) (*floorConn, error) {
	conn, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return nil, err
	}
	accept := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + websocketGUID))
	_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(accept[:]))
	in := bufio.NewReaderSize(io.MultiReader(io.LimitReader(buffered, int64(buffered.Reader.Buffered())), conn), floorBuffer)
	return &floorConn{Conn: conn, in: in}, err
}

// hop passes messages on between two websockets, both ways.
func hop(near, far *floorConn) {
	pass := func(from, to *floorConn) {
		for {
			message, err := from.next()
			if err != nil || to.send(message) != nil {
				_, _ = near.Close(), far.Close()
				return
			}
		}
	}
	var back sync.WaitGroup
	back.Go(func() { pass(far, near) })
	pass(near, far)
	back.Wait()
}

// floorRequest is what a client asks the floor for.
type floorRequest struct {
	ID   int      `json:"id"`
	Argv []string `json:"argv"`
}

// floorSocketRun runs programs, each of which is a request. Several may run at once.
func floorSocketRun(c *floorConn) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		message, err := c.next()
		if err != nil {
			return err
		}
		var request floorRequest
		if err := json.Unmarshal(message, &request); err != nil {
			return err
		}
		running.Go(func() {
			var buffer []byte
			err := spawn(request.Argv, func(output []byte) error {
				buffer = appendNotification(buffer[:0], output)
				return c.send(buffer)
			})
			_ = c.send(fmt.Appendf(nil, `{"id":%d,"result":{"good":%t}}`, request.ID, err == nil)) // to no client, if it is gone
		})
	}
}

// floorSocketFile sends the files whose paths it receives.
func floorSocketFile(c *floorConn) error {
	for {
		path, err := c.next()
		if err != nil {
			return err
		}
		var buffer []byte
		if err := readPieces(string(path), floorSocketPiece, func(piece []byte) error {
			buffer = appendNotification(buffer[:0], piece)
			return c.send(buffer)
		}); err != nil {
			return err
		}
		if err := c.send([]byte(`{"id":1,"result":{"good":true}}`)); err != nil {
			return err
		}
	}
}

// floorSocketEcho returns messages unchanged.
func floorSocketEcho(c *floorConn) error {
	for {
		message, err := c.next()
		if err == nil {
			err = c.send(message)
		}
		if err != nil {
			return err
		}
	}
}

// floorSocketTerminal is the shortest way of a key to a terminal and back where a request
// has an answer, which comes before the echo: two goroutines and a lock.
func floorSocketTerminal(c *floorConn) error {
	master, end, err := startTerminal()
	if err != nil {
		return err
	}
	var order sync.Mutex
	var echoing sync.WaitGroup
	echoing.Go(func() {
		for piece := make([]byte, 16); ; {
			n, err := master.Read(piece)
			if err != nil {
				return // the terminal is closed
			}
			order.Lock()
			_ = c.send(appendNotification(nil, piece[:n]))
			order.Unlock()
		}
	})
	for err == nil {
		var key []byte
		if key, err = c.next(); err == nil {
			order.Lock()
			_, _ = master.Write(key)
			err = c.send([]byte(`{"id":1,"result":{"status":"accepted"}}`))
			order.Unlock()
		}
	}
	end()
	echoing.Wait()
	return err
}

// appendNotification encodes a message of output as clients get it.
func appendNotification(b, data []byte) []byte {
	b = append(b, `{"method":"process/output","params":{"processId":"p","seq":100000,"stream":"stdout","chunk":"`...)
	return append(jsonrpc.AppendBase64Text(b, data), `"}}`...)
}

// chunkBytes is how many bytes are in the chunk of a notification of output, without
// decoding it; -1 if it is none.
func chunkBytes(message []byte) int {
	const key = `"chunk":"`
	if !bytes.HasPrefix(message, []byte(`{"method":"process/output"`)) {
		return -1
	}
	start := bytes.Index(message, []byte(key)) + len(key)
	end := bytes.LastIndexByte(message, '"')
	n := (end - start) / 4 * 3
	for i := end - 1; i > start && message[i] == '='; i-- {
		n--
	}
	return n
}

// floorSocket connects to the websocket of the floor.
func (b *bench) floorSocket(p *harness.Peer, path string) *harness.RawSocket {
	b.Helper()
	return harness.DialSocket(b, p.URLs[harness.JSONRPC]+"/"+path)
}

// runSocket runs a program on the floor at once so many times, and checks how many bytes
// that gives.
func (b *bench) runSocket(s *harness.RawSocket, times int, n int64, argv ...string) {
	b.Helper()
	for id := range times {
		request, _ := json.Marshal(floorRequest{ID: id, Argv: argv}) // cannot fail
		s.Send(harness.OpText, request)
	}
	b.receiveSocket(s, times, n)
}

// receiveSocket receives so many results, and what comes before them.
func (b *bench) receiveSocket(s *harness.RawSocket, results int, n int64) {
	b.Helper()
	var received int64
	for results > 0 {
		m, err := s.Next()
		if err != nil {
			b.Fatal(err)
		}
		if size := chunkBytes(m); size >= 0 {
			received += int64(size)
			continue
		}
		if !bytes.Contains(m, []byte(`"good":true`)) {
			b.Fatalf("the floor answered %s", m)
		}
		results--
	}
	if received != n {
		b.Fatalf("the floor sent %d bytes of %d", received, n)
	}
}
