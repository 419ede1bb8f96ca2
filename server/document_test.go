package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// conversation is an example from a document: the client sends lines that begin with ">",
// expects those with "<" and performs those with "!".
type conversation struct {
	method string
	lines  []string
}

func conversations(t *testing.T, document string) []conversation {
	t.Helper()
	text, err := os.ReadFile("../docs/" + document)
	if err != nil {
		t.Fatal(err)
	}
	var list []conversation
	for block := range strings.SplitSeq(string(text), "```conversation ") {
		method, rest, _ := strings.Cut(block, "\n")
		body, _, fenced := strings.Cut(rest, "\n```")
		if fenced && (method == "RunProcess" || method == "OwnProcess" || method == "WatchProcess" || method == "AttachSession") {
			list = append(list, conversation{method, strings.Split(body, "\n")})
		}
	}
	return list
}

func TestDocumentExamples_MatchServer(t *testing.T) {
	for document, want := range map[string]int{"protocol.md": 4, "sessions.md": 1} {
		list := conversations(t, document)
		if len(list) != want {
			t.Fatalf("docs/%s has %d conversations", document, len(list))
		}
		for i, c := range list {
			t.Run(fmt.Sprint(c.method, i), func(t *testing.T) {
				s := &speaker{t: t, f: newFixture(t), method: c.method}
				for _, line := range c.lines {
					s.play(line)
				}
				s.finish()
			})
		}
	}
}

// speaker is the client of a conversation.
type speaker struct {
	t       *testing.T
	f       *fixture
	method  string
	session string // replaces SESSION of the document, once it is known
	owner   string // replaces OWNER

	cancel  context.CancelCauseFunc
	send    func(json string) error
	receive func() (proto.Message, error)
	events  []any // received and not yet expected
	answers []any // other messages, received and not yet expected
}

func (s *speaker) play(line string) {
	s.t.Helper()
	text := strings.TrimSpace(line[1:])
	if s.session != "" {
		text = strings.ReplaceAll(text, "SESSION\"", s.session+"\"")
	}
	if line[0] == '!' {
		text = strings.ReplaceAll(text, `"OWNER"`, `"`+s.owner+`"`)
	}
	switch {
	case line[0] == '>':
		if s.send == nil {
			s.connect()
		}
		if err := s.send(text); err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
	case line[0] == '<':
		s.expect(parse(s.t, text))
	case strings.HasSuffix(text, "is started"):
		req := &execwirev1.StartProcessRequest{}
		fill(s.t, strings.TrimSuffix(text, "is started"), req)
		s.f.start(req)
		if s.method == "WatchProcess" {
			s.f.waitClosed(req.GetProcessId())
		}
	case strings.HasSuffix(text, "is written"):
		if err := s.write(strings.TrimSuffix(text, "is written")); err != nil {
			s.t.Fatal(err)
		}
	case strings.Contains(text, " fails with "):
		request, reason, _ := strings.Cut(text, " fails with ")
		if err := s.write(request); !strings.Contains(fmt.Sprint(status.Convert(err).Details()), reason) {
			s.t.Fatalf("%s: %v", line, err)
		}
	case strings.HasSuffix(text, "is acknowledged"):
		req := &execwirev1.AcknowledgeOutputRequest{}
		fill(s.t, strings.TrimSuffix(text, "is acknowledged"), req)
		if _, err := s.f.processes.AcknowledgeOutput(s.f.ctx, req); err != nil {
			s.t.Fatal(err)
		}
	default:
		s.cancel(errors.New("the test cuts the connection"))
		s.send, s.events, s.answers = nil, nil, nil
		switch {
		case s.session != "":
			s.f.awaitDetached(s.session)
		case s.method == "OwnProcess":
			s.f.awaitUnowned("web")
		}
	}
}

func (s *speaker) write(text string) error {
	req := &execwirev1.WriteStdinRequest{}
	fill(s.t, text, req)
	_, err := s.f.processes.WriteStdin(s.f.ctx, req)
	return err
}

func (s *speaker) connect() {
	ctx, cancel := context.WithCancelCause(s.f.ctx)
	s.cancel = cancel
	switch s.method {
	case "WatchProcess":
		s.send = func(text string) error {
			req := &execwirev1.WatchProcessRequest{}
			fill(s.t, text, req)
			stream, err := s.f.processes.WatchProcess(ctx, req)
			s.receive = func() (proto.Message, error) { return stream.Recv() }
			return err
		}
	case "OwnProcess":
		s.send = func(text string) error {
			req := &execwirev1.OwnProcessRequest{}
			fill(s.t, text, req)
			stream, err := s.f.processes.OwnProcess(ctx, req)
			s.receive = func() (proto.Message, error) { return stream.Recv() }
			return err
		}
	case "RunProcess":
		stream, err := s.f.processes.RunProcess(ctx)
		converse(s, stream, err)
	case "AttachSession":
		stream, err := s.f.leases.AttachSession(ctx)
		converse(s, stream, err)
	}
}

// converse makes the speaker use a bidirectional stream.
func converse[Req, Res any](s *speaker, stream grpc.BidiStreamingClient[Req, Res], err error) {
	if err != nil {
		s.t.Fatal(err)
	}
	s.receive = func() (proto.Message, error) {
		m, err := stream.Recv()
		return any(m).(proto.Message), err
	}
	s.send = func(text string) error {
		req := new(Req)
		fill(s.t, text, any(req).(proto.Message))
		// Sending on a stream that has ended is not an error here.
		if err := stream.Send(req); !errors.Is(err, io.EOF) {
			return err
		}
		return nil
	}
}

// expect reads messages until the expected one arrives. It compares events one by one,
// because their distribution over messages has no meaning.
func (s *speaker) expect(want map[string]any) {
	s.t.Helper()
	if wanted := eventsOf(want); wanted != nil {
		for _, w := range wanted {
			s.expectEvent(w.(map[string]any))
		}
		return
	}
	for {
		for i, a := range s.answers {
			if includes(a, s.named(want)) {
				s.answers = append(s.answers[:i], s.answers[i+1:]...)
				return
			}
		}
		s.take()
	}
}

// expectEvent reads messages until there is an event of the process, which must be the
// expected one. The order between processes is not defined.
func (s *speaker) expectEvent(want map[string]any) {
	s.t.Helper()
	for {
		for i, got := range s.events {
			if got.(map[string]any)["processId"] != want["processId"] {
				continue
			}
			if !includes(got, want) {
				s.t.Fatalf("received event %v, want %v", got, want)
			}
			s.events = slices.Delete(s.events, i, i+1)
			return
		}
		s.take()
	}
}

// named replaces the placeholders SESSION and OWNER.
func (s *speaker) named(want map[string]any) map[string]any {
	if started, ok := want["started"].(map[string]any); ok && started["ownerId"] != nil {
		started["ownerId"] = s.owner
	}
	attached, _ := want["attached"].(map[string]any)
	if described, ok := attached["session"].(map[string]any); ok && s.session != "" {
		described["sessionId"] = s.session
	}
	return want
}

func (s *speaker) take() {
	s.t.Helper()
	m, err := s.receive()
	if err != nil {
		s.t.Fatalf("the stream ended with %v; not yet expected are %v and %v", err, s.events, s.answers)
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		s.t.Fatal(err)
	}
	if attached, ok := m.(*execwirev1.AttachSessionResponse); ok && attached.GetAttached() != nil {
		s.session = attached.GetAttached().GetSession().GetSessionId()
	}
	if own, ok := m.(*execwirev1.OwnProcessResponse); ok && own.GetStarted() != nil {
		s.owner = own.GetStarted().GetOwnerId()
	}
	got := parse(s.t, string(text))
	if events := eventsOf(got); events != nil {
		s.events = append(s.events, events...)
		return
	}
	s.answers = append(s.answers, got)
}

// finish expects the end of the stream and no event that is missing in the document.
func (s *speaker) finish() {
	s.t.Helper()
	for {
		_, err := s.receive()
		if err == io.EOF {
			break
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	if len(s.events) > 0 {
		s.t.Errorf("events missing in the document: %v", s.events)
	}
}

// eventsOf returns the events of a message, each with the process id of the message if it
// has one, or nil if the message has no events.
func eventsOf(m map[string]any) []any {
	if inner, ok := m["events"].(map[string]any); ok {
		m = inner
	}
	list, _ := m["events"].([]any)
	if id, ok := m["processId"]; ok {
		for _, event := range list {
			event.(map[string]any)["processId"] = id
		}
	}
	return list
}

// includes reports whether got has every member of want, with its value. The encoding
// omits members with default values.
func includes(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, ok := got.(map[string]any)
		if !ok {
			return false
		}
		for name, value := range want {
			if !includes(have[name], value) && (have[name] != nil || value != "0") {
				return false
			}
		}
		return true
	case []any:
		have, ok := got.([]any)
		if !ok || len(have) != len(want) {
			return false
		}
		for i := range want {
			if !includes(have[i], want[i]) {
				return false
			}
		}
		return true
	default:
		return got == want
	}
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

func fill(t *testing.T, text string, m proto.Message) {
	t.Helper()
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}
