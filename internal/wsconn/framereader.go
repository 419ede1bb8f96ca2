package wsconn

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
	"net"
	"sync"
	"unicode/utf8"
)

// Sizes of the buffer between a frameReader and the connection, which every idle
// connection keeps: a server has many, a client few. It has space for a whole control
// frame. Larger reads bypass it.
const (
	serverReadAhead = 1 << 10
	clientReadAhead = 4 << 10
)

// frameReader reads the messages of a peer from its frames (RFC 6455, section 5).
// A frame beyond a limit is rejected by its header, before its payload arrives.
//
// A deadline of the connection may interrupt it anywhere, and drain continues
// there: headers and control frames are consumed only when they are complete.
type frameReader struct {
	fromClient   bool // frames are masked
	frameLimit   int64
	messageLimit int64
	onControl    func(opcode byte, payload []byte) // called for each ping and pong

	mu     sync.Mutex // held while reading from the connection
	src    *bufio.Reader
	closed bool // guarded by mu; only drain may read

	// The current frame. Guarded by mu.
	first  byte    // of its header
	masked bool    // its payload is masked
	key    [4]byte // with which it is masked
	length int64   // of its payload
	left   int64   // bytes of its payload still to come

	messageOpen  bool   // guarded by mu; the final frame of the message is still to come
	messageBytes int64  // guarded by mu; announced size of the current message so far
	closeReply   []byte // guarded by mu; payload of the close frame for the peer; nil for none yet
}

func newFrameReader(from io.Reader, fromClient bool, o Options, onControl func(byte, []byte)) *frameReader {
	ahead := clientReadAhead
	if fromClient {
		ahead = serverReadAhead
	}
	return &frameReader{src: bufio.NewReaderSize(from, ahead), fromClient: fromClient,
		frameLimit: o.FrameBytes, messageLimit: o.MessageBytes, onControl: onControl}
}

// next begins the next message, after the end of the last one, and returns its
// opcode. The error is a [*TooLargeError], a [*ClosedError] also for code 1000, a
// [protocolError], or one of the connection.
func (r *frameReader) next() (opcode byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, net.ErrClosed
	}
	err = r.nextData()
	return r.first & opcodeBits, err
}

// Read reads the payload of the message that next has begun. The error is io.EOF
// at its end, else as that of next.
func (r *frameReader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, net.ErrClosed // drain may have read the rest of the message
	}
	for r.left == 0 {
		if !r.messageOpen {
			return 0, io.EOF
		}
		if err := r.nextData(); err != nil {
			return 0, err
		}
	}
	n, err := r.src.Read(p[:min(int64(len(p)), r.left)])
	r.unmask(p[:n])
	r.left -= int64(n)
	if n > 0 {
		return n, nil // the next read from the connection returns the error again
	}
	return 0, notNormal(err)
}

// remaining returns how many bytes of the current frame are still to come, and whether
// more frames of the message follow.
func (r *frameReader) remaining() (bytes int64, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left, r.messageOpen
}

// nextData reads up to the payload of the next data frame. mu is held.
func (r *frameReader) nextData() error {
	for {
		if err := r.header(); err != nil {
			return err
		}
		if err := r.checkLimits(); err != nil {
			return err
		}
		if err := r.checkProtocol(); err != nil {
			r.refuse(err.Error())
			return err
		}
		if r.first&bitControl == 0 {
			r.messageOpen = r.first&bitFinal == 0
			return nil
		}
		if err := r.control(); err != nil {
			return err
		}
	}
}

// header reads the next header. mu is held.
func (r *frameReader) header() error {
	b, err := r.src.Peek(2)
	if err == nil {
		b, err = r.src.Peek(headerLength(b[1]))
	}
	if err != nil {
		return notNormal(err)
	}
	length := uint64(b[1] & lengthBits)
	switch length {
	case length16:
		length = uint64(binary.BigEndian.Uint16(b[2:]))
	case length64:
		length = binary.BigEndian.Uint64(b[2:])
	}
	r.first, r.masked = b[0], b[1]&bitMasked != 0
	r.length = int64(min(length, math.MaxInt64))
	r.left = r.length
	if r.masked {
		copy(r.key[:], b[len(b)-len(r.key):])
	}
	_, err = r.src.Discard(len(b))
	return err
}

// headerLength returns the length of a header by its second byte.
func headerLength(second byte) int {
	n := 2
	switch second & lengthBits {
	case length16:
		n += 2
	case length64:
		n += 8
	}
	if second&bitMasked != 0 {
		n += 4
	}
	return n
}

// checkLimits returns the limit that the current frame exceeds. mu is held.
func (r *frameReader) checkLimits() error {
	if r.first&bitControl != 0 && r.length <= maxControlPayload {
		return nil
	}
	if r.length > r.frameLimit {
		return &TooLargeError{What: "frame", Bytes: r.length, Limit: r.frameLimit}
	}
	if r.first&opcodeBits != opContinuation {
		r.messageBytes = 0
	}
	if r.messageBytes += r.length; r.messageBytes > r.messageLimit {
		return &TooLargeError{What: "message", Bytes: r.messageBytes, Limit: r.messageLimit}
	}
	return nil
}

// protocolError is a violation of the protocol by the peer.
type protocolError string

func (e protocolError) Error() string { return "websocket protocol error: " + string(e) }

// checkProtocol returns how the header of the current frame violates the protocol.
// mu is held.
func (r *frameReader) checkProtocol() error {
	opcode := r.first & opcodeBits
	isControl := opcode&bitControl != 0
	switch {
	case r.first&bitsReserved != 0:
		return protocolError("reserved bits are set")
	case opcode > opBinary && opcode < opClose, opcode > opPong:
		return protocolError("unknown opcode")
	case r.masked != r.fromClient:
		return protocolError("only frames of clients are masked")
	case isControl && r.first&bitFinal == 0:
		return protocolError("a control frame is fragmented")
	case isControl && r.length > maxControlPayload:
		return protocolError("a control frame is too long")
	case !isControl && r.messageOpen && opcode != opContinuation:
		return protocolError("a message begins within another")
	case !isControl && !r.messageOpen && opcode == opContinuation:
		return protocolError("a continuation frame without a message")
	}
	return nil
}

// control reads the payload of a control frame and processes it. The error of a
// close frame says how the peer closed. mu is held.
func (r *frameReader) control() error {
	payload, err := r.src.Peek(int(r.length))
	if err != nil {
		return notNormal(err)
	}
	r.unmask(payload)
	r.left = 0
	opcode := r.first & opcodeBits
	if opcode == opClose {
		err = r.peerClosed(payload)
	} else {
		r.onControl(opcode, payload)
	}
	_, _ = r.src.Discard(len(payload)) // cannot fail for buffered data
	return err
}

// peerClosed processes the payload of a close frame. mu is held.
func (r *frameReader) peerClosed(payload []byte) error {
	if len(payload) == 0 {
		r.closeReply = []byte{}
		return &ClosedError{Code: codeMissing}
	}
	var code int
	if len(payload) > 1 {
		code = int(binary.BigEndian.Uint16(payload))
	}
	if !sendable(code) {
		err := protocolError("a close frame has an invalid code")
		r.refuse(err.Error())
		return err
	}
	reason := payload[2:]
	r.closeReply = append([]byte{}, payload[:2]...)
	if utf8.Valid(reason) { // otherwise it must not be sent
		r.closeReply = append(r.closeReply, reason...)
	}
	return &ClosedError{Code: code, Reason: string(reason)}
}

// refuse sets the reply to a violation of the protocol. mu is held.
func (r *frameReader) refuse(reason string) {
	r.closeReply = append(binary.BigEndian.AppendUint16(nil, codeProtocol), reason...)
}

// unmask unmasks the part of the current payload that follows what was read
// before. mu is held.
func (r *frameReader) unmask(part []byte) {
	if r.masked {
		mask(part, r.key[:], int((r.length-r.left)%int64(len(r.key))))
	}
}

// reply returns the payload of the close frame that answers the peer's close frame
// or violation of the protocol; nil for none.
func (r *frameReader) reply() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closeReply
}

// stop fails all further calls but drain. A deadline must interrupt a call in
// progress.
func (r *frameReader) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// drain discards frames up to a close frame, the end of the peer's side, or the
// read deadline: closing a socket with unread data would reset the connection, and
// the peer would lose data that it has not read.
func (r *frameReader) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		n, err := io.CopyN(io.Discard, r.src, r.left)
		if r.left -= n; err != nil {
			return
		}
		if r.first&opcodeBits == opClose {
			return
		}
		if r.header() != nil {
			return
		}
	}
}
