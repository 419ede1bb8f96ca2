package rendezvous

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	relayv1 "github.com/execwire/execwire/gen/go/codex/exec_server/relay/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/wsconn"
)

// patience bounds waiting for something that must happen.
const patience = 2 * time.Minute

var errHangs = errors.New("the test hangs")

// testHub is a hub that accepts the name of a principal as its token.
type testHub struct {
	*Hub
	t   testing.TB
	url string
}

func startHub(t testing.TB, config Config) *testHub {
	t.Helper()
	config.Authenticate = func(r *http.Request) (auth.Member, error) {
		token, err := auth.ParseAuthorization(r.Header.Values("Authorization"))
		switch {
		case err != nil:
			return auth.Member{}, err
		case token == "":
			return auth.Member{}, &auth.Error{Kind: auth.KindCredentialMissing, Subject: "caller", Err: errors.New("nothing")}
		case token == "wrong":
			return auth.Member{}, &auth.Error{Kind: auth.KindTokenInvalid, Subject: "caller", Err: errors.New("wrong")}
		case token == "nobody":
			return auth.Member{Principal: auth.Principal{Name: token}}, nil
		}
		return auth.UnrestrictedMember(auth.Principal{Name: token}), nil
	}
	config.Recall = func(_ *http.Request, p auth.Principal) (auth.Member, error) { return auth.UnrestrictedMember(p), nil }
	hub, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(hub)
	t.Cleanup(func() {
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return &testHub{Hub: hub, t: t, url: server.URL}
}

// ask makes a request and returns the status and JSON of the response.
func (h *testHub) ask(method, path, token string, header http.Header) (int, map[string]any) {
	h.t.Helper()
	r, err := http.NewRequest(method, h.url+path, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer response.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	var body map[string]any
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
		h.t.Fatalf("%s %s: %s and no JSON: %v", method, path, response.Status, err)
	}
	return response.StatusCode, body
}

// register returns the URL for an executor to connect to.
func (h *testHub) register(id, instance string) string {
	h.t.Helper()
	header := http.Header{}
	if instance != "" {
		header.Set(headerInstance, instance)
	}
	return h.registerWith(id, header)
}

func (h *testHub) registerWith(id string, header http.Header) string {
	h.t.Helper()
	status, body := h.ask(http.MethodPost, "/cloud/executor/"+id+"/register", "fleet", header)
	if status != http.StatusOK || body["executor_id"] != id {
		h.t.Fatalf("registering gave %d, %v", status, body)
	}
	return body["url"].(string)
}

// end is a test's end of a websocket.
type end struct {
	t    testing.TB
	conn *wsconn.Conn
	got  chan *relayv1.RelayMessageFrame
	over chan struct{}
	err  error // why receiving ended; once over is closed
}

func dial(t testing.TB, url string, header http.Header) (*end, error) {
	t.Helper()
	e, err := dialUnread(t, url, header)
	if err == nil {
		e.read()
	}
	return e, err
}

// dialUnread is dial without receiving frames.
func dialUnread(t testing.TB, url string, header http.Header) (*end, error) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errHangs)
	defer cancel()
	conn, err := wsconn.Dial(ctx, url, wsconn.DialOptions{Options: wsconn.Options{Binary: true}, Header: header})
	if err != nil {
		return nil, err
	}
	return &end{t: t, conn: conn, got: make(chan *relayv1.RelayMessageFrame, 10_000), over: make(chan struct{})}, nil
}

// read begins to receive frames.
func (e *end) read() {
	go func() {
		defer close(e.over)
		for {
			message, err := e.conn.Receive()
			if err != nil {
				e.err = err
				return
			}
			frame := new(relayv1.RelayMessageFrame)
			if err := proto.Unmarshal(message, frame); err != nil {
				e.t.Errorf("%.100q came: %v", message, err)
			}
			e.got <- frame
		}
	}()
	e.t.Cleanup(e.close)
}

func mustDial(t testing.TB, url string, header http.Header) *end {
	t.Helper()
	e, err := dial(t, url, header)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// mustDialUnread is mustDial without receiving frames.
func mustDialUnread(t testing.TB, url string, header http.Header) *end {
	t.Helper()
	e, err := dialUnread(t, url, header)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// executor connects as an executor. With an instance it announces that it
// retransmits.
func (h *testHub) executor(id, instance string) *end {
	h.t.Helper()
	return mustDial(h.t, h.register(id, instance), nil)
}

// harness connects as a harness of a principal.
func (h *testHub) harness(id, principal string, resumable bool) *end {
	h.t.Helper()
	header := http.Header{"Authorization": {"Bearer " + principal}}
	if resumable {
		header.Set(headerResumable, "1")
	}
	return mustDial(h.t, "ws"+strings.TrimPrefix(h.url, "http")+"/executor/"+id+"?role=harness", header)
}

func (e *end) close() {
	_ = e.conn.Close(wsconn.CodeNormal, "")
	<-e.over
}

// cut ends the connection as a network failure does.
func (e *end) cut() {
	_ = e.conn.Close(0, "")
	<-e.over
}

// data is a frame as the reference implementation sends it.
func data(stream string, seq uint32, payload string) *relayv1.RelayMessageFrame {
	return &relayv1.RelayMessageFrame{Version: 1, StreamId: stream, Body: &relayv1.RelayMessageFrame_Data{
		Data: &relayv1.RelayData{Seq: seq, SegmentCount: 1, Payload: []byte(payload)},
	}}
}

func (e *end) send(frames ...*relayv1.RelayMessageFrame) {
	e.t.Helper()
	for _, frame := range frames {
		message, err := proto.Marshal(frame)
		if err == nil {
			err = e.conn.Send(message)
		}
		if err != nil {
			e.t.Fatal(err)
		}
	}
}

// next returns the next frame.
func (e *end) next() *relayv1.RelayMessageFrame {
	e.t.Helper()
	patient := time.NewTimer(patience)
	defer patient.Stop()
	select {
	case frame := <-e.got:
		return frame
	case <-e.over:
		select {
		case frame := <-e.got:
			return frame
		default:
			e.t.Fatalf("the websocket ended: %v", e.err)
		}
	case <-patient.C:
		e.t.Fatal("nothing came")
	}
	return nil
}

func (e *end) expect(want *relayv1.RelayMessageFrame) {
	e.t.Helper()
	if got := e.next(); !proto.Equal(got, want) {
		e.t.Fatalf("%v came, want %v", got, want)
	}
}

func (e *end) expectReset(stream, reason string) {
	e.t.Helper()
	got := e.next()
	if got.GetVersion() != 1 || got.GetStreamId() != stream || got.GetReset_().GetReason() != reason {
		e.t.Fatalf("%v came, want a reset of %s with %s", got, stream, reason)
	}
}

// expectClosed waits for the websocket to be closed with code.
func (e *end) expectClosed(code int, reason string) {
	e.t.Helper()
	patient := time.NewTimer(patience)
	defer patient.Stop()
	select {
	case <-e.over:
	case <-patient.C:
		e.t.Fatal("the websocket does not end")
	}
	var closed *wsconn.ClosedError
	if !errors.As(e.err, &closed) || closed.Code != code || closed.Reason != reason {
		e.t.Fatalf("the websocket ended by %v, want code %d and %q", e.err, code, reason)
	}
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !so() {
		if time.Now().After(deadline) {
			t.Fatalf("it never came about that %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
