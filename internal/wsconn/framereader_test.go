package wsconn

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"testing/iotest"
)

// framesRead is what a frameReader found in a stream.
type framesRead struct {
	messages []string // with their opcodes
	controls []string // with their opcodes
	err      error
}

func (h framesRead) String() string { return fmt.Sprintf("%q, %q, %v", h.messages, h.controls, h.err) }

// readFrames reads all messages of a stream, with the limits of the tests.
func readFrames(from io.Reader, p []byte) (h framesRead) {
	r := newFrameReader(from, true, Options{FrameBytes: 1000, MessageBytes: 1500}, func(opcode byte, payload []byte) {
		h.controls = append(h.controls, fmt.Sprintf("%d %s", opcode, payload))
	})
	for {
		opcode, err := r.next()
		if h.err = err; err != nil {
			return h
		}
		var message bytes.Buffer
		for {
			n, err := r.Read(p)
			message.Write(p[:n])
			if err == io.EOF {
				break
			}
			if h.err = err; err != nil {
				return h
			}
		}
		h.messages = append(h.messages, fmt.Sprintf("%d %s", opcode, message.Bytes()))
	}
}

// masked is a whole frame of a client.
func masked(first byte, payload []byte) []byte {
	key := []byte{1, 2, 3, 4}
	frame := appendHeader(nil, first, len(payload), key)
	start := len(frame)
	frame = append(frame, payload...)
	mask(frame[start:], key, 0)
	return frame
}

// FuzzFrameReader: it does not matter how a stream is split, nor how it is read;
// only a violation of the protocol, a limit, a close frame and its end end it.
func FuzzFrameReader(f *testing.F) {
	head := func(first byte, length int) []byte { return appendHeader(nil, first, length, []byte{1, 2, 3, 4}) }
	payload := bytes.Repeat([]byte{'x'}, 2000)
	for _, seed := range [][]byte{
		{},
		append(head(bitFinal|opText, 5), "hello"...),
		append(head(bitFinal|opPing, 5), "hello"...),
		append(head(opText, 1000), payload[:1000]...),
		head(bitFinal|opText, 1001),
		append(append(head(opText, 1000), payload[:1000]...), head(bitFinal|opContinuation, 501)...),
		head(bitFinal|opPing, 126),
		{bitFinal | opText, bitMasked | length64, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0},
		append(append(head(bitFinal|opPing, 100), payload[:100]...), head(bitFinal|opClose, 2)...),
		bytes.Join([][]byte{masked(opText, payload[:7]), masked(bitFinal|opPing, []byte("p")), masked(bitFinal|opContinuation, payload[:300]), masked(bitFinal|opClose, []byte{0x03, 0xe8})}, nil),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		whole := readFrames(bytes.NewReader(b), make([]byte, 512))
		_, limited := errors.AsType[*TooLargeError](whole.err)
		_, closed := errors.AsType[*ClosedError](whole.err)
		_, violated := errors.AsType[protocolError](whole.err)
		if !limited && !closed && !violated && whole.err != io.ErrUnexpectedEOF {
			t.Fatalf("the end is %v", whole.err)
		}
		for name, from := range map[string]io.Reader{
			"single bytes":   iotest.OneByteReader(bytes.NewReader(b)),
			"halves":         iotest.HalfReader(bytes.NewReader(b)),
			"with the error": iotest.DataErrReader(bytes.NewReader(b)),
		} {
			if cut := readFrames(from, make([]byte, 3)); cut.String() != whole.String() {
				t.Fatalf("%s: %s, whole: %s", name, cut, whole)
			}
		}
	})
}

// interrupted returns an error once, after the first bytes of a stream.
type interrupted struct {
	first, rest io.Reader
	done        bool
}

func (i *interrupted) Read(p []byte) (int, error) {
	n, err := i.first.Read(p)
	switch {
	case err == nil:
		return n, nil
	case !i.done:
		i.done = true
		return 0, os.ErrDeadlineExceeded
	}
	return i.rest.Read(p)
}

// TestFrameReader_DrainContinues interrupts reading after every byte of a stream:
// drain reads exactly up to the close frame, also after a frame beyond a limit or a
// violation of the protocol.
func TestFrameReader_DrainContinues(t *testing.T) {
	for name, begin := range map[string][]byte{
		"messages":  bytes.Join([][]byte{masked(opText, []byte("hello")), masked(bitFinal|opPing, []byte("p")), masked(bitFinal|opContinuation, make([]byte, 300))}, nil),
		"too large": append(masked(bitFinal|opBinary, make([]byte, 1200)), masked(opText, make([]byte, 1100))...),
		"violation": append(masked(bitFinal|opContinuation, []byte("x")), bitFinal|opText, 2, 'n', 'o'),
	} {
		stream := append(begin, masked(bitFinal|opClose, []byte{0x03, 0xe8, 'x'})...)
		for cut := range len(stream) {
			after := bytes.NewReader([]byte("more"))
			from := &interrupted{first: bytes.NewReader(stream[:cut]), rest: io.MultiReader(bytes.NewReader(stream[cut:]), after)}
			r := newFrameReader(from, true, Options{FrameBytes: 1000, MessageBytes: 1500}, func(byte, []byte) {})
			var err error
			for err == nil {
				if _, err = r.next(); err == nil {
					_, err = io.Copy(io.Discard, r)
				}
			}
			from.done = true // whatever ended it, the deadline is set anew
			r.stop()
			r.drain()
			if r.first&opcodeBits != opClose || r.left != 0 || after.Len() != 4 {
				t.Errorf("%s, interrupted after %d bytes with %v: drained to the opcode %d with %d bytes left, and %d after its end",
					name, cut, err, r.first&opcodeBits, r.left, after.Len())
			}
		}
	}
}
