package integration

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/execwire/execwire/internal/testproc"
)

// Websocket opcodes.
const (
	opContinue = 0
	opText     = 1
	opBinary   = 2
	opClose    = 8
	opPing     = 9
	opPong     = 10
)

// benchSocket is a websocket client that costs as little as one can: floors and
// ours are measured with the same. It answers pings. Reading is for one
// goroutine.
type benchSocket struct {
	tb   *bench
	conn net.Conn
	in   *bufio.Reader
	data []byte // of the last message

	sending sync.Mutex
}

// dialSocket connects to ws://HOST:PORT/PATH until the benchmark ends.
func (b *bench) dialSocket(url string) *benchSocket {
	b.Helper()
	address, path, _ := strings.Cut(strings.TrimPrefix(url, "ws://"), "/")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	s := &benchSocket{tb: b, conn: conn, in: bufio.NewReaderSize(conn, 256<<10)}
	fmt.Fprintf(conn, "GET /%s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", path, address)
	response, err := http.ReadResponse(s.in, nil)
	if err != nil {
		b.Fatal(err)
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		b.Fatalf("the server answered %s", response.Status)
	}
	return s
}

// send sends one message as one frame.
func (s *benchSocket) send(opcode byte, message []byte) {
	if err := s.write(opcode, message); err != nil {
		s.tb.Errorf("failed to send: %v", err)
	}
}

// write writes one frame. Its mask is zero, which costs nothing.
func (s *benchSocket) write(opcode byte, message []byte) error {
	frame := binary.BigEndian.AppendUint32(append([]byte{0x80 | opcode}, frameLength(0x80, len(message))...), 0)
	s.sending.Lock()
	defer s.sending.Unlock()
	_, err := s.conn.Write(append(frame, message...))
	return err
}

// frameLength is the length of a frame as its header has it; mask is 0x80 for
// frames of clients.
func frameLength(mask byte, n int) []byte {
	switch {
	case n < 126:
		return []byte{mask | byte(n)}
	case n < 1<<16:
		return binary.BigEndian.AppendUint16([]byte{mask | 126}, uint16(n))
	default:
		return binary.BigEndian.AppendUint64([]byte{mask | 127}, uint64(n))
	}
}

// next returns the next message, valid until the next call. At the end of the
// connection it returns io.EOF.
func (s *benchSocket) next() ([]byte, error) {
	s.data = s.data[:0]
	err := s.frames(func() {})
	return s.data, err
}

// pieces has take see the next message in the pieces that it comes in, which are
// of take only while it runs. At the end of the connection it returns io.EOF.
func (s *benchSocket) pieces(take func(piece []byte)) error {
	s.data = s.data[:0]
	return s.frames(func() {
		take(s.data)
		s.data = s.data[:0]
	})
}

// frames appends the frames of the next message to data, and calls appended after
// each.
func (s *benchSocket) frames(appended func()) error {
	for {
		final, opcode, n, err := s.header()
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
		case opContinue, opText, opBinary:
			appended()
			if final {
				return nil
			}
		case opPing:
			if err := s.write(opPong, s.data[start:]); err != nil {
				return err // a ping may come while the benchmark closes
			}
			s.data = s.data[:start]
		case opClose:
			return io.EOF
		default:
			s.data = s.data[:start]
		}
	}
}

func (s *benchSocket) header() (final bool, opcode byte, n int, err error) {
	var h [8]byte
	if _, err = io.ReadFull(s.in, h[:2]); err != nil {
		return false, 0, 0, err
	}
	final, opcode, n = h[0]&0x80 != 0, h[0]&15, int(h[1]&127)
	switch n {
	case 126:
		_, err = io.ReadFull(s.in, h[:2])
		n = int(binary.BigEndian.Uint16(h[:2]))
	case 127:
		_, err = io.ReadFull(s.in, h[:8])
		n = int(binary.BigEndian.Uint64(h[:8]))
	}
	return final, opcode, n, err
}

// benchRPC is a JSON-RPC client on such a socket.
type benchRPC struct {
	*benchSocket
	tb *bench

	mu       sync.Mutex
	id       int
	waiting  map[int]chan rpcMessage    // for answers, by request
	followed map[string]chan rpcMessage // for notifications, by process
	reading  sync.WaitGroup
}

// rpcMessage is what the benchmarks look at of a message.
type rpcMessage struct {
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

// dialRPC connects, shakes hands, and has a goroutine read.
func (b *bench) dialRPC(url string) *benchRPC {
	b.Helper()
	c := b.dialRPCUnread(url)
	c.reading.Go(c.read)
	b.Cleanup(func() {
		_ = c.conn.Close()
		c.reading.Wait()
	})
	return c
}

// dialRPCUnread is dialRPC for a caller that reads for itself.
func (b *bench) dialRPCUnread(url string) *benchRPC {
	b.Helper()
	c := &benchRPC{benchSocket: b.dialSocket(url), tb: b, waiting: map[int]chan rpcMessage{}, followed: map[string]chan rpcMessage{}}
	c.send(opText, []byte(`{"id":0,"method":"initialize","params":{"clientName":"bench"}}`))
	if answer, err := c.next(); err != nil || !bytes.Contains(answer, []byte(`"sessionId"`)) {
		b.Fatalf("initialize was answered %q: %v", answer, err)
	}
	c.send(opText, []byte(`{"method":"initialized"}`))
	return c
}

// read hands every message to who waits for it.
func (c *benchRPC) read() {
	for {
		raw, err := c.next()
		if err != nil {
			return
		}
		var m rpcMessage
		if err := json.Unmarshal(raw, &m); err != nil {
			c.tb.Errorf("got %q: %v", raw, err)
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

// request sends a request and returns where its answer comes.
func (c *benchRPC) request(method, params string) <-chan rpcMessage {
	answer := make(chan rpcMessage, 1)
	c.mu.Lock()
	c.id++
	id := c.id
	c.waiting[id] = answer
	c.mu.Unlock()
	c.send(opText, fmt.Appendf(nil, `{"id":%d,"method":%q,"params":%s}`, id, method, params))
	return answer
}

// call sends a request and waits for its result.
func (c *benchRPC) call(method, params string) json.RawMessage {
	m := <-c.request(method, params)
	if m.Result == nil {
		c.tb.Errorf("%s %s: %s", method, params, m.Error)
	}
	return m.Result
}

// follow returns where the notifications of a process come, all of which must
// be taken, and what ends that.
func (c *benchRPC) follow(process string) (events <-chan rpcMessage, end func()) {
	to := make(chan rpcMessage, 16)
	c.mu.Lock()
	c.followed[process] = to
	c.mu.Unlock()
	return to, func() {
		c.mu.Lock()
		delete(c.followed, process)
		c.mu.Unlock()
	}
}

// startParams is what starts argv the way all rows do; more are members beside.
func startParams(process, more string, argv ...string) string {
	arguments, _ := json.Marshal(argv) // cannot fail
	return fmt.Sprintf(`{"processId":%q,"argv":%s,"cwd":"/","env":{"PATH":"/usr/bin:/bin","GORACE":"atexit_sleep_ms=0"}%s}`,
		process, arguments, more)
}

// notification encodes a message of output as clients get it.
func notification(data []byte) []byte {
	message := make([]byte, 0, 128+base64.StdEncoding.EncodedLen(len(data)))
	message = append(message, `{"method":"process/output","params":{"processId":"p","seq":100000,"stream":"stdout","chunk":"`...)
	return append(base64.StdEncoding.AppendEncode(message, data), `"}}`...)
}

// chunkBytes is how many bytes are in the chunk of a notification of output,
// without decoding it; -1 if it is none.
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

func init() { testproc.Register("bench-bare-socket", serveBareSocket) }
