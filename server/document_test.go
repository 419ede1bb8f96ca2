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
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// conversation is an example of a document: lines that begin with ">" are sent,
// "<" are expected, "!" happen.
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
		if fenced && (method == "RunProcess" || method == "WatchProcess" || method == "AttachSession") {
			list = append(list, conversation{method, strings.Split(body, "\n")})
		}
	}
	return list
}

func TestDocumentsAreTrue(t *testing.T) {
	for document, want := range map[string]int{"protocol.md": 3, "sessions.md": 1} {
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

// speaker plays the client of a conversation.
type speaker struct {
	t       *testing.T
	f       *fixture
	method  string
	session string // what documents call SESSION, once it is known

	cancel  context.CancelCauseFunc
	send    func(json string) error
	receive func() (proto.Message, error)
	events  []any // told and not yet expected
	answers []any // other messages, told and not yet expected
}

func (s *speaker) play(line string) {
	s.t.Helper()
	said := strings.TrimSpace(line[1:])
	if s.session != "" {
		said = strings.ReplaceAll(said, "SESSION\"", s.session+"\"")
	}
	switch {
	case line[0] == '>':
		if s.send == nil {
			s.connect()
		}
		if err := s.send(said); err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
	case line[0] == '<':
		s.expect(parse(s.t, said))
	case strings.HasSuffix(said, "is started"):
		req := &execwirev1.StartProcessRequest{}
		fill(s.t, strings.TrimSuffix(said, "is started"), req)
		s.f.start(req)
		if s.method == "WatchProcess" {
			s.f.waitClosed(req.GetProcessId())
		}
	case strings.HasSuffix(said, "is written"):
		req := &execwirev1.WriteStdinRequest{}
		fill(s.t, strings.TrimSuffix(said, "is written"), req)
		if _, err := s.f.processes.WriteStdin(s.f.ctx, req); err != nil {
			s.t.Fatal(err)
		}
	default:
		s.cancel(errors.New("the connection is cut"))
		s.send, s.events, s.answers = nil, nil, nil
		if s.session != "" {
			s.f.awaitDetached(s.session)
		}
	}
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
	case "RunProcess":
		stream, err := s.f.processes.RunProcess(ctx)
		converse(s, stream, err)
	case "AttachSession":
		stream, err := s.f.leases.AttachSession(ctx)
		converse(s, stream, err)
	}
}

// converse has the speaker use a stream with messages in both directions.
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
		// A stream that has ended takes nothing more, and that is no mistake.
		if err := stream.Send(req); !errors.Is(err, io.EOF) {
			return err
		}
		return nil
	}
}

// expect takes messages until the expected one was told. How events share
// messages means nothing, so they are compared one by one.
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

// expectEvent takes messages until there is an event of the process, which must
// be the expected one. Of several processes nobody knows who speaks first.
func (s *speaker) expectEvent(want map[string]any) {
	s.t.Helper()
	for {
		for i, told := range s.events {
			if told.(map[string]any)["processId"] != want["processId"] {
				continue
			}
			if !includes(told, want) {
				s.t.Fatalf("event %v was told, and %v expected", told, want)
			}
			s.events = slices.Delete(s.events, i, i+1)
			return
		}
		s.take()
	}
}

// named puts the session's id, which nobody knows before it was told, in the
// place of its name.
func (s *speaker) named(want map[string]any) map[string]any {
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
		s.t.Fatalf("the stream ended with %v; left over are %v and %v", err, s.events, s.answers)
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		s.t.Fatal(err)
	}
	if attached, ok := m.(*execwirev1.AttachSessionResponse); ok && attached.GetAttached() != nil {
		s.session = attached.GetAttached().GetSession().GetSessionId()
	}
	told := parse(s.t, string(text))
	if events := eventsOf(told); events != nil {
		s.events = append(s.events, events...)
		return
	}
	s.answers = append(s.answers, told)
}

// finish expects the end of the stream and no event that the document hides.
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
		s.t.Errorf("events that the document leaves out: %v", s.events)
	}
}

// eventsOf returns the events of a message, each with its process where the
// message names one, or nil if it is not about events.
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

// includes reports whether told has every member of want, with its value. A
// member with its default value is left out of the encoding.
func includes(told, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, ok := told.(map[string]any)
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
		have, ok := told.([]any)
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
		return told == want
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
