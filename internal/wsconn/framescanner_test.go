package wsconn

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// through returns what a frameScanner passes on of b, read in pieces by from, and
// the error that ends it. It fails if part of a control frame is passed on.
func through(t *testing.T, b []byte, from func(io.Reader) io.Reader) ([]byte, error) {
	t.Helper()
	w := newFrameScanner(from(bytes.NewReader(b)), 1000, 1500)
	var out []byte
	p := make([]byte, 512)
	for {
		n, err := w.Read(p)
		out = append(out, p[:n]...)
		if err != nil {
			if n != 0 {
				t.Errorf("%d bytes came with the error %v", n, err)
			}
			return out, err
		}
		if n == 0 {
			t.Fatal("nothing was read, without an error")
		}
	}
}

// FuzzFrameScanner: it does not matter how a stream is split, what is passed on
// is its beginning, and only limits and its end end it.
func FuzzFrameScanner(f *testing.F) {
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
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		whole, wholeErr := through(t, b, func(r io.Reader) io.Reader { return r })
		if !bytes.HasPrefix(b, whole) {
			t.Fatalf("%x became %x", b, whole)
		}
		tooLarge, limited := errors.AsType[*TooLargeError](wholeErr)
		if !limited && wholeErr != io.ErrUnexpectedEOF {
			t.Fatalf("the end is %v", wholeErr)
		}
		for name, from := range map[string]func(io.Reader) io.Reader{
			"single bytes":   iotest.OneByteReader,
			"halves":         iotest.HalfReader,
			"with the error": iotest.DataErrReader,
		} {
			cut, cutErr := through(t, b, from)
			again, ok := errors.AsType[*TooLargeError](cutErr)
			if ok != limited || ok && *again != *tooLarge {
				t.Fatalf("%s: %v, whole: %v", name, cutErr, wholeErr)
			}
			// The header of a rejected data frame may be passed on in part.
			if shorter := min(len(cut), len(whole)); !bytes.Equal(cut[:shorter], whole[:shorter]) || max(len(cut), len(whole))-shorter >= maxHeader {
				t.Fatalf("%s: %x, whole: %x", name, cut, whole)
			}
		}
	})
}

func TestFrameScanner_PassesControlFramesWhole(t *testing.T) {
	ping := appendHeader(nil, bitFinal|opPing, 100, []byte{1, 2, 3, 4})
	ping = append(ping, bytes.Repeat([]byte{'p'}, 100)...)
	data := append(appendHeader(nil, bitFinal|opText, 3, []byte{1, 2, 3, 4}), "abc"...)
	stream := bytes.Join([][]byte{data, ping, ping, data, ping}, nil)
	w := newFrameScanner(iotest.OneByteReader(bytes.NewReader(stream)), 1000, 1000)
	var out []byte
	p := make([]byte, 512)
	for {
		n, err := w.Read(p)
		if err != nil {
			break
		}
		if n > 1 && !bytes.Equal(p[:n], ping) {
			t.Errorf("handed on %q at once", p[:n])
		}
		if n == 1 && len(out) > 0 && p[0] == 'p' {
			t.Error("a part of a ping was handed on")
		}
		out = append(out, p[:n]...)
	}
	if !bytes.Equal(out, stream) {
		t.Errorf("handed on %q of %q", out, stream)
	}
}
