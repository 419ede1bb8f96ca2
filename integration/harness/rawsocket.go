package harness

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// BlockBytes is the largest block that can be requested.
const BlockBytes = 1 << 20

// Websocket opcodes.
const (
	OpContinue = 0
	OpText     = 1
	OpBinary   = 2
	OpClose    = 8
	OpPing     = 9
	OpPong     = 10
)

// RawSocket is a websocket client with as little cost as possible, for measuring bare
// servers and ours alike. It answers pings. One goroutine may read.
type RawSocket struct {
	tb   testing.TB
	Conn net.Conn
	in   *bufio.Reader
	data []byte // of the last message

	sending sync.Mutex
}

// DialSocket connects to ws://HOST:PORT/PATH until the benchmark ends.
func DialSocket(b testing.TB, url string) *RawSocket {
	b.Helper()
	address, path, _ := strings.Cut(strings.TrimPrefix(url, "ws://"), "/")
	conn, in, response, err := roundTrip(address, "GET", "/"+path, UpgradeHeaders(), 256<<10)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	if response.StatusCode != http.StatusSwitchingProtocols {
		b.Fatalf("the server answered %s", response.Status)
	}
	return &RawSocket{tb: b, Conn: conn, in: in}
}

// Send sends one message as one frame.
func (s *RawSocket) Send(opcode byte, message []byte) {
	if err := s.write(opcode, message); err != nil {
		s.tb.Errorf("failed to send: %v", err)
	}
}

// write writes one frame. Its mask is zero, which costs nothing.
func (s *RawSocket) write(opcode byte, message []byte) error {
	frame := binary.BigEndian.AppendUint32(append([]byte{0x80 | opcode}, FrameLength(0x80, len(message))...), 0)
	s.sending.Lock()
	defer s.sending.Unlock()
	_, err := s.Conn.Write(append(frame, message...))
	return err
}

// FrameLength encodes the length of a frame for its header. mask is 0x80 for frames of
// clients.
func FrameLength(mask byte, n int) []byte {
	switch {
	case n < 126:
		return []byte{mask | byte(n)}
	case n < 1<<16:
		return binary.BigEndian.AppendUint16([]byte{mask | 126}, uint16(n))
	default:
		return binary.BigEndian.AppendUint64([]byte{mask | 127}, uint64(n))
	}
}

// Next returns the next message, valid until the next call. At the end of the
// connection it returns io.EOF.
func (s *RawSocket) Next() ([]byte, error) {
	s.data = s.data[:0]
	err := s.frames(func() {})
	return s.data, err
}

// Pieces calls take with each piece of the next message, which is valid during the
// call. At the end of the connection it returns io.EOF.
func (s *RawSocket) Pieces(take func(piece []byte)) error {
	s.data = s.data[:0]
	return s.frames(func() {
		take(s.data)
		s.data = s.data[:0]
	})
}

// frames appends the frames of the next message to data, and calls appended after
// each.
func (s *RawSocket) frames(appended func()) error {
	for {
		final, opcode, n, err := readFrameHeader(s.in)
		if err != nil {
			return err
		}
		start := len(s.data)
		if cap(s.data) < start+n {
			s.data = append(make([]byte, 0, 2*(start+n)), s.data...)
		}
		s.data = s.data[:start+n]
		if _, err := io.ReadFull(s.in, s.data[start:]); err != nil {
			return err
		}
		switch opcode {
		case OpContinue, OpText, OpBinary:
			appended()
			if final {
				return nil
			}
		case OpPing:
			if err := s.write(OpPong, s.data[start:]); err != nil {
				return err // a ping may come while the benchmark closes
			}
			s.data = s.data[:start]
		case OpClose:
			return io.EOF
		default:
			s.data = s.data[:start]
		}
	}
}

var errMasked = errors.New("a server masked a frame")

// readFrameHeader reads the header of a frame of a server, with its length.
func readFrameHeader(in io.Reader) (final bool, opcode byte, n int, err error) {
	var h [8]byte
	if _, err = io.ReadFull(in, h[:2]); err != nil {
		return false, 0, 0, err
	}
	if h[1]&0x80 != 0 {
		return false, 0, 0, errMasked
	}
	final, opcode, n = h[0]&0x80 != 0, h[0]&15, int(h[1])
	switch n {
	case 126:
		_, err = io.ReadFull(in, h[:2])
		n = int(binary.BigEndian.Uint16(h[:2]))
	case 127:
		_, err = io.ReadFull(in, h[:8])
		n = int(binary.BigEndian.Uint64(h[:8]))
	}
	return final, opcode, n, err
}

// RawRPC is a JSON-RPC client on such a socket.
type RawRPC struct {
	*RawSocket
	Tb testing.TB

	mu       sync.Mutex
	id       int
	waiting  map[int]chan RPCMessage    // for answers, by request
	followed map[string]chan RPCMessage // for notifications, by process
	reading  sync.WaitGroup
}

// RPCMessage is what the benchmarks look at of a message.
type RPCMessage struct {
	ID     *int            `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
	Params struct {
		ProcessID string `json:"processId"`
		Seq       uint64 `json:"seq"`
		Stream    string `json:"stream"`
		Chunk     []byte `json:"chunk"`
		ExitCode  *int   `json:"exitCode"`
	} `json:"params"`
}

// DialRPC connects, initializes, and starts a goroutine that reads.
func DialRPC(b testing.TB, url string) *RawRPC {
	b.Helper()
	c := DialRPCUnread(b, url)
	c.reading.Go(c.read)
	b.Cleanup(func() {
		_ = c.Conn.Close()
		c.reading.Wait()
	})
	return c
}

// DialRPCUnread is DialRPC without that goroutine.
func DialRPCUnread(b testing.TB, url string) *RawRPC {
	b.Helper()
	c := &RawRPC{RawSocket: DialSocket(b, url), Tb: b, waiting: map[int]chan RPCMessage{}, followed: map[string]chan RPCMessage{}}
	c.Send(OpText, []byte(`{"id":0,"method":"initialize","params":{"clientName":"bench"}}`))
	if answer, err := c.Next(); err != nil || !bytes.Contains(answer, []byte(`"sessionId"`)) {
		b.Fatalf("initialize was answered %q: %v", answer, err)
	}
	c.Send(OpText, []byte(`{"method":"initialized"}`))
	return c
}

// read passes every message to the goroutine that waits for it.
func (c *RawRPC) read() {
	for {
		raw, err := c.Next()
		if err != nil {
			return
		}
		var m RPCMessage
		if err := json.Unmarshal(raw, &m); err != nil {
			c.Tb.Errorf("got %q: %v", raw, err)
			return
		}
		c.mu.Lock()
		to := c.followed[m.Params.ProcessID]
		if m.ID != nil {
			to = c.waiting[*m.ID]
			delete(c.waiting, *m.ID)
		}
		c.mu.Unlock()
		if to != nil {
			to <- m
		}
	}
}

// Request sends a request and returns the channel of its response.
func (c *RawRPC) Request(method, params string) <-chan RPCMessage {
	answer := make(chan RPCMessage, 1)
	c.mu.Lock()
	c.id++
	id := c.id
	c.waiting[id] = answer
	c.mu.Unlock()
	c.Send(OpText, fmt.Appendf(nil, `{"id":%d,"method":%q,"params":%s}`, id, method, params))
	return answer
}

// Call sends a request and waits for its result.
func (c *RawRPC) Call(method, params string) json.RawMessage {
	m := <-c.Request(method, params)
	if m.Result == nil {
		c.Tb.Errorf("%s %s: %s", method, params, m.Error)
	}
	return m.Result
}

// Follow returns a channel of the notifications of a process, which the caller must
// drain, and a function that ends it.
func (c *RawRPC) Follow(process string) (events <-chan RPCMessage, end func()) {
	to := make(chan RPCMessage, 16)
	c.mu.Lock()
	c.followed[process] = to
	c.mu.Unlock()
	return to, func() {
		c.mu.Lock()
		delete(c.followed, process)
		c.mu.Unlock()
	}
}

// StartParams returns the parameters that start argv; more is further members.
func StartParams(process, more string, argv ...string) string {
	arguments, _ := json.Marshal(argv) // cannot fail
	return fmt.Sprintf(`{"processId":%q,"argv":%s,"cwd":"/","env":{"PATH":"/usr/bin:/bin","GORACE":"atexit_sleep_ms=0"}%s}`,
		process, arguments, more)
}
