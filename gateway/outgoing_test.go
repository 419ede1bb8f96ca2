package gateway

import (
	"errors"
	"io"
	"testing"

	"github.com/execwire/execwire/internal/tracecontext"
)

// recordingTransport records sent messages, and the parts of streamed ones.
type recordingTransport struct {
	*pipe
	sent []string
}

func (w *recordingTransport) Send(message []byte) error {
	w.sent = append(w.sent, string(message))
	return nil
}

func (w *recordingTransport) Begin() (io.WriteCloser, error) { return w, nil }

func (w *recordingTransport) Write(part []byte) (int, error) { return len(part), w.Send(part) }

func (w *recordingTransport) Close() error { return w.Send([]byte("end")) }

// closable hides the Close of messages behind that of transports.
type closable struct{ *recordingTransport }

func (closable) Close(int, string) error { return nil }

func TestOutgoing_PartialMessage_IsNotInterrupted(t *testing.T) {
	w := &recordingTransport{pipe: newPipe()}
	o := &outgoing{conn: closable{w}, limit: 1 << 20}
	failed := errors.New("the rest cannot be read")
	err := o.stream(tracecontext.Context{}, func(to io.Writer) error {
		_, err := io.WriteString(to, "half")
		o.post([]byte("queued meanwhile"))
		return errors.Join(err, failed)
	})
	if !errors.Is(err, failed) {
		t.Errorf("a partial message was sent with %v", err)
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
		t.Errorf("after a partial message: %v", err)
	}
	if err := o.stream(tracecontext.Context{}, func(io.Writer) error { return nil }); !errors.Is(err, failed) {
		t.Errorf("after a partial message another one began: %v", err)
	}
	if len(w.sent) != 1 || w.sent[0] != "half" {
		t.Errorf("sent were %q", w.sent)
	}
}
