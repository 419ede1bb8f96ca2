package gateway

import (
	"errors"
	"io"
	"testing"
)

// wholes is a transport that records what is sent, and what is begun as it comes.
type wholes struct {
	*pipe
	said []string
}

func (w *wholes) Send(message []byte) error {
	w.said = append(w.said, string(message))
	return nil
}

func (w *wholes) Begin() (io.WriteCloser, error) { return w, nil }

func (w *wholes) Write(part []byte) (int, error) { return len(part), w.Send(part) }

func (w *wholes) Close() error { return w.Send([]byte("end")) }

// closable hides the Close of messages behind that of transports.
type closable struct{ *wholes }

func (closable) Close(int, string) error { return nil }

func TestNothingGetsIntoHalfAMessage(t *testing.T) {
	w := &wholes{pipe: newPipe()}
	o := &outgoing{conn: closable{w}, limit: 1 << 20}
	failed := errors.New("the rest cannot be read")
	err := o.stream(func(to io.Writer) error {
		_, err := io.WriteString(to, "half")
		o.post([]byte("queued meanwhile"))
		return errors.Join(err, failed)
	})
	if !errors.Is(err, failed) {
		t.Errorf("half a message was said with %v", err)
	}
	o.post([]byte("queued later"))
	o.flush()
	o.flushBlocking()
	left := 1
	one := func(dst []byte) ([]byte, bool) {
		left--
		return append(dst, "said"...), left == 0
	}
	if err := o.send(one); !errors.Is(err, failed) {
		t.Errorf("after half a message: %v", err)
	}
	if err := o.stream(func(io.Writer) error { return nil }); !errors.Is(err, failed) {
		t.Errorf("after half a message another began: %v", err)
	}
	if len(w.said) != 1 || w.said[0] != "half" {
		t.Errorf("what was said is %q", w.said)
	}
}
