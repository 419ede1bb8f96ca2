package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// receiving returns a transport that receives from in, and discards what is sent.
func receiving(t *testing.T, in io.Reader, options StdioOptions) *Stdio {
	s := NewStdio(io.NopCloser(in), discard{}, options)
	t.Cleanup(func() {
		if err := s.Close(1000, ""); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Close() error                { return nil }

// receiveAll returns all messages and the error after them.
func receiveAll(s *Stdio) (messages []string, err error) {
	for {
		message, err := s.Receive()
		if err != nil {
			return messages, err
		}
		messages = append(messages, string(message))
	}
}

func TestStdio_ReceivesLines(t *testing.T) {
	long := strings.Repeat("long ", 50_000)
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"empty":                 {"", nil},
		"lines":                 {"{\"a\":1}\n{}\n", []string{`{"a":1}`, `{}`}},
		"CRLF":                  {"a\r\n\r\nb\r\n", []string{"a", "b"}},
		"blanks":                {"\n \t \n a \n\v\f\n", []string{" a "}},
		"last without newline":  {"a\nb", []string{"a", "b"}},
		"last with CR":          {"a\r", []string{"a"}},
		"last is blank":         {"a\n  ", []string{"a"}},
		"long":                  {long + "x\n\n" + long + "\r\nb\n" + long, []string{long + "x", long, "b", long}},
		"as long as the buffer": {strings.Repeat("x", 64<<10) + "\n" + strings.Repeat("y", 64<<10-1) + "\nz", []string{strings.Repeat("x", 64<<10), strings.Repeat("y", 64<<10-1), "z"}},
	} {
		for form, in := range map[string]io.Reader{"at once": strings.NewReader(c.in), "in parts": iotest.HalfReader(strings.NewReader(c.in))} {
			s := receiving(t, in, StdioOptions{})
			if got, err := receiveAll(s); err != io.EOF || !slices.Equal(got, c.want) {
				t.Errorf("%s %s: %d messages and %v, want %d", name, form, len(got), err, len(c.want))
			}
			if _, err := s.Receive(); err != io.EOF {
				t.Errorf("%s %s: after the end Receive returned %v", name, form, err)
			}
		}
	}
}

func TestStdio_LineTooLong_Fails(t *testing.T) {
	for _, limit := range []int{1, 100, 64<<10 - 1, 64 << 10, 64<<10 + 1, 200_000} {
		most := strings.Repeat("x", limit)
		for _, ending := range []string{"\n", "\r\n", ""} {
			s := receiving(t, strings.NewReader("a\n"+most+ending), StdioOptions{MessageLimit: limit})
			if got, err := receiveAll(s); err != io.EOF || !slices.Equal(got, []string{"a", most}) {
				t.Errorf("limit %d, ending %q: %d messages and %v", limit, ending, len(got), err)
			}

			s = receiving(t, strings.NewReader("a\n"+most+"x"+ending+"\nb\n"), StdioOptions{MessageLimit: limit})
			got, err := receiveAll(s)
			var large TooLarge
			if !errors.As(err, &large) || !slices.Equal(got, []string{"a"}) {
				t.Fatalf("limit %d, one more, ending %q: %d messages and %v", limit, ending, len(got), err)
			}
			if what, bytes := large.TooLarge(); what != "line" || bytes != int64(limit) || !strings.Contains(err.Error(), fmt.Sprint(limit)) {
				t.Errorf("limit %d: %v (%s, %d)", limit, err, what, bytes)
			}
			if _, again := s.Receive(); again != err {
				t.Errorf("limit %d: after the error Receive returned %v", limit, again)
			}
			if err := s.Send([]byte("still")); err != nil {
				t.Errorf("limit %d: Send after the error: %v", limit, err)
			}
		}
	}
}

// A partial message is not processed after the connection is lost.
func TestStdio_LostInput_DropsPartialLine(t *testing.T) {
	errLost := errors.New("gone")
	s := receiving(t, io.MultiReader(strings.NewReader("a\nhalf"), iotest.ErrReader(errLost)), StdioOptions{})
	got, err := receiveAll(s)
	if !errors.Is(err, errLost) || !strings.HasPrefix(err.Error(), "standard input was lost: ") || !slices.Equal(got, []string{"a"}) {
		t.Errorf("%q and %v", got, err)
	}
}

func TestNewStdio_NegativeLimit_Panics(t *testing.T) {
	for _, options := range []StdioOptions{{MessageLimit: -1}, {CloseTimeout: -1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v was accepted", options)
				}
			}()
			NewStdio(io.NopCloser(strings.NewReader("")), discard{}, options)
		}()
	}
}

func TestStdio_Prove_IsUnsupported(t *testing.T) {
	s := receiving(t, strings.NewReader(""), StdioOptions{})
	if err := s.Prove(t.Context()); err != ErrCannotProve {
		t.Errorf("Prove: %v", err)
	}
	if s.Peer() != "exec-server stdio" {
		t.Errorf("the peer is %q", s.Peer())
	}
}

// gate is an output whose writes block until the test permits them.
type gate struct {
	let  chan struct{} // each write receives one; closed: writes do not block
	once sync.Once

	mu     sync.Mutex
	writes []string
	fail   error // the error of later writes
}

func newGate() *gate { return &gate{let: make(chan struct{})} }

func (g *gate) Write(p []byte) (int, error) {
	<-g.let
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fail != nil {
		return 0, g.fail
	}
	g.writes = append(g.writes, string(p))
	return len(p), nil
}

func (g *gate) open() { g.once.Do(func() { close(g.let) }) }

// Close makes blocked writes fail, as those to a pipe do.
func (g *gate) Close() error {
	g.mu.Lock()
	g.fail = errors.New("closed")
	g.mu.Unlock()
	g.open()
	return nil
}

func (g *gate) written() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.writes)
}

func sending(out io.WriteCloser, options StdioOptions) *Stdio {
	return NewStdio(io.NopCloser(strings.NewReader("")), out, options)
}

func send(t *testing.T, s *Stdio, messages ...string) {
	t.Helper()
	for _, message := range messages {
		if err := s.Send([]byte(message)); err != nil {
			t.Errorf("Send: %v", err)
		}
	}
}

func TestStdio_Message_IsOneWrite(t *testing.T) {
	out := newGate()
	out.open()
	s := sending(out, StdioOptions{})
	send(t, s, "first", "second")
	if err := s.Close(0, ""); err != nil {
		t.Errorf("Close: %v", err)
	}
	if got, want := out.written(), []string{"first\n", "second\n"}; !slices.Equal(got, want) {
		t.Errorf("got the writes %q, want %q", got, want)
	}
}

func TestStdio_SlowReader_BlocksSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newGate()
		s := sending(out, StdioOptions{})
		sent := 0
		var sender sync.WaitGroup
		sender.Go(func() {
			for range 20 {
				send(t, s, "0123")
				sent++
			}
			send(t, s, strings.Repeat("long", bufferedBytes))
		})
		synctest.Wait()
		if sent > 0 {
			t.Errorf("%d messages were accepted", sent)
		}
		out.open()
		sender.Wait()
		if err := s.Close(0, ""); err != nil {
			t.Errorf("Close: %v", err)
		}
		if got := strings.Join(out.written(), ""); got != strings.Repeat("0123\n", 20)+strings.Repeat("long", bufferedBytes)+"\n" {
			t.Errorf("%d bytes were written", len(got))
		}
	})
}

func TestStdio_MessageInParts(t *testing.T) {
	var out closingBuffer
	s := sending(&out, StdioOptions{})
	send(t, s, "before")
	message, err := s.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if n, err := message.Write([]byte("part,")); n != 5 || err != nil {
			t.Fatalf("Write: %d, %v", n, err)
		}
	}
	for range 2 {
		if err := message.Close(); err != nil {
			t.Errorf("Close of the message: %v", err)
		}
	}
	if _, err := message.Write([]byte("x")); err == nil {
		t.Error("a part was accepted after the end")
	}
	send(t, s, "after")
	if err := s.Close(0, ""); err != nil {
		t.Errorf("Close: %v", err)
	}
	if got := out.String(); got != "before\n"+strings.Repeat("part,", 100)+"\nafter\n" {
		t.Errorf("got %q", got)
	}
}

type closingBuffer struct{ bytes.Buffer }

func (*closingBuffer) Close() error { return nil }

func TestStdio_OutputLost_Fails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, stdin := io.Pipe()
		stdout, out := io.Pipe()
		s := NewStdio(in, out, StdioOptions{})
		errLost := errors.New("gone")
		stdout.CloseWithError(errLost)
		if err := s.Send([]byte("b")); !errors.Is(err, errLost) || !strings.HasPrefix(err.Error(), "standard output was lost: ") {
			t.Errorf("Send: %v", err)
		}
		if _, err := s.Begin(); !errors.Is(err, errLost) {
			t.Errorf("Begin: %v", err)
		}
		if err := s.Close(0, ""); !errors.Is(err, errLost) {
			t.Errorf("Close: %v", err)
		}
		stdin.Close()
	})
}

// Close unblocks all calls, although the peer neither reads nor writes.
func TestStdio_CloseTimeout_UnblocksAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, stdin := io.Pipe()
		stdout, out := io.Pipe()
		s := NewStdio(in, out, StdioOptions{})
		var users sync.WaitGroup
		users.Go(func() {
			if _, err := s.Receive(); err != ErrClosed {
				t.Errorf("Receive: %v", err)
			}
		})
		users.Go(func() {
			if err := s.Send([]byte("more than the buffer has")); err != ErrClosed {
				t.Errorf("Send: %v", err)
			}
		})
		synctest.Wait()
		begun := time.Now()
		err := s.Close(0, "")
		if err == nil || !strings.HasPrefix(err.Error(), "what was sent did not leave within 5s, and the rest is given up: ") {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(begun); took != DefaultCloseTimeout { // simulated time
			t.Errorf("Close took %v", took)
		}
		users.Wait()
		if err := s.Close(0, ""); err != nil {
			t.Errorf("the second Close: %v", err)
		}
		stdin.Close()
		stdout.Close()
	})
}

func TestStdio_Close_FlushesSentMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stdout, out := io.Pipe()
		s := sending(out, StdioOptions{})
		var reader sync.WaitGroup
		reader.Go(func() { send(t, s, "a") })
		synctest.Wait() // the write is blocked
		reader.Go(func() {
			time.Sleep(DefaultCloseTimeout - 1) // simulated time
			if got, err := io.ReadAll(stdout); string(got) != "a\n" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		})
		if err := s.Close(0, ""); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := s.Send([]byte("late")); err != ErrClosed {
			t.Errorf("Send: %v", err)
		}
		reader.Wait()
	})
}
