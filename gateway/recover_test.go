package gateway

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// faulty is a server whose calls panic in the caller.
type faulty struct {
	grpc.ClientConnInterface
	invoke string           // the method that panics
	sent   func(m any) bool // reports whether sending a message panics
	got    func(m any) bool // the same for received messages
}

func (f *faulty) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	f.panicIf(f.invoke != "" && strings.HasSuffix(method, f.invoke))
	return f.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

func (f *faulty) panicIf(really bool) {
	if really {
		panic("a fault in the test")
	}
}

func (f *faulty) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := f.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	return &faultyStream{stream, f}, err
}

type faultyStream struct {
	grpc.ClientStream
	faulty *faulty
}

func (s *faultyStream) SendMsg(m any) error {
	s.faulty.panicIf(s.faulty.sent != nil && s.faulty.sent(m))
	return s.ClientStream.SendMsg(m)
}

func (s *faultyStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	s.faulty.panicIf(err == nil && s.faulty.got != nil && s.faulty.got(m))
	return err
}

// Each part of a connection panics in turn.
func TestPanic_ClosesOneConnectionOnly(t *testing.T) {
	onFrame := func(text string) func(*pipe) {
		return func(p *pipe) {
			p.fault = func(call string, message []byte) bool { return call == "Send" && bytes.Contains(message, []byte(text)) }
		}
	}
	isEvents := func(m any) bool { return m.(*execwirev1.AttachSessionResponse).GetEvents() != nil }
	isPong := func(m any) bool { return m.(*execwirev1.AttachSessionRequest).GetPong() != nil }
	start := func(_ *testServer, cl *client, _ string) {
		cl.ask("process/start", startOf("p", "echo hello; exec sleep 1000"))
	}
	for name, test := range map[string]struct {
		srv   faulty
		pipe  func(*pipe)
		cause func(c *testServer, cl *client, session string)
	}{
		"request":      {srv: faulty{invoke: "StartProcess"}, cause: start},
		"feed":         {srv: faulty{got: isEvents}, cause: start},
		"notification": {pipe: onFrame("process/output"), cause: start},
		"answer":       {pipe: onFrame("sandboxType"), cause: start},
		"refusal":      {pipe: onFrame("no/such"), cause: func(_ *testServer, cl *client, _ string) { cl.ask("no/such", nil) }},
		"watermark":    {pipe: func(p *pipe) { p.fault = func(call string, _ []byte) bool { return call == "Prove" } }, cause: start},
		"pong": {srv: faulty{sent: isPong}, cause: func(c *testServer, _ *client, session string) {
			c.connect().ask("initialize", map[string]any{"clientName": "other", "resumeSessionId": session})
		}},
		"reception": {pipe: func(p *pipe) {
			p.fault = func(call string, message []byte) bool {
				return call == "Receive" && bytes.Contains(message, []byte("no/such"))
			}
		}, cause: func(_ *testServer, cl *client, _ string) { cl.ask("no/such", nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newTestServer(t)
			sound := srv.channel
			test.srv.ClientConnInterface = sound
			srv.channel = &test.srv
			var logged bytes.Buffer
			cl, session := srv.attach("", func(p *pipe, config *Config) {
				config.Logger = slog.New(slog.NewTextHandler(&logged, nil))
				if test.pipe != nil {
					test.pipe(p)
				}
			})
			srv.channel = sound
			other, _ := srv.attach("")
			test.cause(srv, cl, session)
			if err := cl.ended(); !errors.Is(err, errPanicked) || cl.pipe.code != closeInternal {
				t.Errorf("Serve returned %v, and the connection was closed with %d %q", err, cl.pipe.code, cl.pipe.reason)
			}
			if !strings.Contains(logged.String(), "a fault in the test") || !strings.Contains(logged.String(), "_test.go:") {
				t.Errorf("the log has no stack: %s", logged.String())
			}
			other.must("environment/status", nil)
			if name != "pong" { // in that case another connection resumes the session
				srv.attach(session)
			}
		})
	}
}
