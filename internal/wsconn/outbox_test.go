package wsconn

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
)

// stalledWriter stalls its first write until it is released.
type stalledWriter struct {
	stalled  chan struct{} // closed by the first write
	released chan struct{}
	written  bytes.Buffer
}

func (w *stalledWriter) Write(b []byte) (int, error) {
	select {
	case <-w.stalled:
	default:
		close(w.stalled)
		<-w.released
	}
	return w.written.Write(b)
}

// A peer that sends pings and does not read fills the buffer with pongs. The close frame
// needs less space than a pong, but nothing may follow it.
func TestOutbox_CloseAfterPendingPong(t *testing.T) {
	to := &stalledWriter{stalled: make(chan struct{}), released: make(chan struct{})}
	out := newOutbox(to, false)
	payload := bytes.Repeat([]byte{'x'}, maxControlPayload)
	out.sendPong(payload)
	<-to.stalled
	for range bufferBytes/(2+maxControlPayload) + 1 {
		out.sendPong(payload)
	}
	out.sendClose(out.control(opClose, []byte{0x03, 0xe8}))
	close(to.released)
	if err := out.wait(); err != nil {
		t.Fatal(err)
	}
	pongs := 0
	peer := newFrameReader(&to.written, false, Options{}.withDefaults(), func(byte, []byte) { pongs++ })
	_, err := peer.next()
	if closed, ok := errors.AsType[*ClosedError](err); !ok || closed.Code != CodeNormal {
		t.Errorf("the end is %v", err)
	}
	if rest, err := io.ReadAll(peer.src); len(rest) > 0 || err != nil {
		t.Errorf("%d bytes follow the close frame, after %d pongs: %.20q, %v", len(rest), pongs, rest, err)
	}
}

// recordingWriter records its writes.
type recordingWriter struct{ writes [][]byte }

func (w *recordingWriter) Write(b []byte) (int, error) {
	w.writes = append(w.writes, b)
	return len(b), nil
}

// A large frame of a server is written from where it is, after what was sent before.
func TestOutbox_LargeFrame_IsNotCopied(t *testing.T) {
	for name, client := range map[string]bool{"server": false, "client": true} {
		t.Run(name, func(t *testing.T) {
			to := &recordingWriter{}
			out := newOutbox(to, client)
			payload := bytes.Repeat([]byte{'x'}, 5*bufferBytes)
			if err := out.sendData(bitFinal|opText, payload); err != nil {
				t.Fatal(err)
			}
			if err := out.wait(); err != nil {
				t.Fatal(err)
			}
			direct := slices.ContainsFunc(to.writes, func(b []byte) bool { return &b[0] == &payload[0] })
			if direct == client {
				t.Errorf("the payload is written itself: %t", direct)
			}
		})
	}
}

// A large frame that comes while another write is in progress follows it, and a ping and the
// close frame follow the frame.
func TestOutbox_LargeFrame_KeepsOrder(t *testing.T) {
	to := &stalledWriter{stalled: make(chan struct{}), released: make(chan struct{})}
	out := newOutbox(to, false)
	small, large := []byte("small"), bytes.Repeat([]byte("0123456789"), bufferBytes)
	out.sendPong(small)
	<-to.stalled
	sent := make(chan error, 1)
	go func() {
		err := out.sendData(bitFinal|opText, small)
		for range 3 {
			err = errors.Join(err, out.sendData(bitFinal|opText, large))
		}
		sent <- errors.Join(err, out.sendPing(small))
	}()
	close(to.released)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	out.sendClose(out.control(opClose, []byte{0x03, 0xe8}))
	if err := out.wait(); err != nil {
		t.Fatal(err)
	}
	controls := 0
	peer := newFrameReader(&to.written, false, Options{}.withDefaults(), func(byte, []byte) { controls++ })
	for i, want := range [][]byte{small, large, large, large} {
		if _, err := peer.next(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(peer); err != nil || !bytes.Equal(got, want) {
			t.Errorf("message %d has %d bytes, want %d: %v", i+1, len(got), len(want), err)
		}
	}
	if _, err := peer.next(); controls != 2 {
		t.Errorf("%d control frames, want a pong and a ping; the end is %v", controls, err)
	}
}

// The check for a dead peer stops while nothing is written, also between the parts of a large frame. Each write resumes it.
func TestOutbox_LargeFrame_ResumesCheck(t *testing.T) {
	to := &recordingWriter{}
	out := newOutbox(to, false)
	resumed := false
	out.beforeWrite = func() { resumed = true }
	out.mu.Lock()
	defer out.mu.Unlock()
	if err := out.writeThrough(make([]byte, bufferBytes)); err != nil || len(to.writes) != 1 || !resumed {
		t.Errorf("%d writes, %v, the check was resumed: %t", len(to.writes), err, resumed)
	}
}
