package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// conversation is an example of docs/protocol.md: lines that begin with ">"
// are sent, "<" are expected, "!" happen.
type conversation struct {
	method string
	lines  []string
}

func conversations(t *testing.T) []conversation {
	t.Helper()
	text, err := os.ReadFile("../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	var list []conversation
	for block := range strings.SplitSeq(string(text), "```conversation ") {
		method, rest, _ := strings.Cut(block, "\n")
		body, _, fenced := strings.Cut(rest, "\n```")
		if fenced && (method == "RunProcess" || method == "WatchProcess") {
			list = append(list, conversation{method, strings.Split(body, "\n")})
		}
	}
	return list
}

func TestProtocolDocumentIsTrue(t *testing.T) {
	list := conversations(t)
	if len(list) != 3 {
		t.Fatalf("docs/protocol.md has %d conversations", len(list))
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

// speaker plays the client of a conversation.
type speaker struct {
	t      *testing.T
	f      *fixture
	method string

	cancel  context.CancelCauseFunc
	send    func(json string) error
	receive func() (proto.Message, error)
	events  []any // told and not yet expected
	answers []any // other messages, told and not yet expected
}

func (s *speaker) play(line string) {
	s.t.Helper()
	said := strings.TrimSpace(line[1:])
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
		s.f.waitClosed(req.GetProcessId())
	default:
		s.cancel(errors.New("the connection is cut"))
		s.send, s.events, s.answers = nil, nil, nil
	}
}

func (s *speaker) connect() {
	ctx, cancel := context.WithCancelCause(s.f.ctx)
	s.cancel = cancel
	if s.method == "WatchProcess" {
		s.send = func(text string) error {
			req := &execwirev1.WatchProcessRequest{}
			fill(s.t, text, req)
			stream, err := s.f.processes.WatchProcess(ctx, req)
			s.receive = func() (proto.Message, error) { return stream.Recv() }
			return err
		}
		return
	}
	stream, err := s.f.processes.RunProcess(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	s.receive = func() (proto.Message, error) { return stream.Recv() }
	s.send = func(text string) error {
		req := &execwirev1.RunProcessRequest{}
		fill(s.t, text, req)
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
			for len(s.events) == 0 {
				s.take()
			}
			if !includes(s.events[0], w) {
				s.t.Fatalf("event %v was told, and %v expected", s.events[0], w)
			}
			s.events = s.events[1:]
		}
		return
	}
	for {
		for i, a := range s.answers {
			if includes(a, want) {
				s.answers = append(s.answers[:i], s.answers[i+1:]...)
				return
			}
		}
		s.take()
	}
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

// eventsOf returns the events of a message, or nil if it is not about events.
func eventsOf(m map[string]any) []any {
	if inner, ok := m["events"].(map[string]any); ok {
		m = inner
	}
	list, _ := m["events"].([]any)
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
