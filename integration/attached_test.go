package integration

import (
	"context"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// attached is an AttachSession stream with the session it leases, from now on
// the session of its story. Nothing happens behind its back: it reads only
// while it is asked for something.
type attached struct {
	story  *story
	stream execwirev1.SessionService_AttachSessionClient
	leave  context.CancelCauseFunc
	told   *execwirev1.SessionAttached

	deaf     bool // answers no pings
	pings    int
	released []string
	feeds    map[string]*feed
	got      []string // whose events came, message by message
}

// feed is what an attachment is told about one process.
type feed struct {
	*follower
	id      string
	silent  bool // acknowledges nothing
	waiting []*execwirev1.ProcessEvent
}

// lease changes how a session is attached.
type lease func(*execwirev1.SessionAttach)

// keep is how long a session is kept.
func keep(d time.Duration) lease {
	return func(m *execwirev1.SessionAttach) { m.Grace = durationpb.New(d) }
}

// whenDetached is what happens to output meanwhile.
func whenDetached(policy execwirev1.WhenDetached) lease {
	return func(m *execwirev1.SessionAttach) { m.WhenDetached = policy }
}

// Policies by short names.
const (
	block   = execwirev1.WhenDetached_WHEN_DETACHED_BLOCK
	discard = execwirev1.WhenDetached_WHEN_DETACHED_DISCARD_OLDEST
	spool   = execwirev1.WhenDetached_WHEN_DETACHED_SPOOL
)

// lease attaches to a new session.
func (s *story) lease(options ...lease) *attached {
	s.Helper()
	a := &attached{story: s, feeds: map[string]*feed{}}
	s.session = ""
	a.attach(options...)
	if a.told.GetResumed() {
		s.Error("a new session counts as resumed")
	}
	return a
}

// again attaches to the session again, after what was taken.
func (a *attached) again(options ...lease) {
	a.story.Helper()
	a.attach(options...)
	if !a.told.GetResumed() {
		a.story.Error("a session that was there counts as new")
	}
}

func (a *attached) attach(options ...lease) {
	a.story.Helper()
	if err := a.tryAttach(options...); err != nil {
		a.story.Fatalf("AttachSession: %v", err)
	}
}

// tryAttach attaches after what was taken, and drops what was received and not.
func (a *attached) tryAttach(options ...lease) error {
	a.story.Helper()
	m := &execwirev1.SessionAttach{SessionId: a.story.session, AfterSeq: map[string]uint64{}}
	for id, f := range a.feeds {
		if f.last > 0 {
			m.AfterSeq[id] = f.last
		}
		f.waiting = nil
	}
	for _, option := range options {
		option(m)
	}
	ctx, leave := context.WithCancelCause(a.story.ctx)
	a.story.Cleanup(func() { leave(errDisconnect) })
	stream, err := a.story.leases.AttachSession(ctx)
	if err == nil {
		err = stream.Send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Attach{Attach: m}})
	}
	if err != nil && !isEnd(err) {
		return err
	}
	response, err := stream.Recv()
	if err != nil {
		return err
	}
	if response.GetAttached() == nil {
		a.story.Fatalf("the first answer is %v, want attached", response)
	}
	a.stream, a.leave, a.told = stream, leave, response.GetAttached()
	a.story.session = a.told.GetSession().GetSessionId()
	return nil
}

// feed follows one process of the session.
func (a *attached) feed(id string) *feed {
	f := a.feeds[id]
	if f == nil {
		f = &feed{follower: newFollower(a.story, 0), id: id}
		f.receive = func() ([]*execwirev1.ProcessEvent, error) { return a.take(id, f) }
		a.feeds[id] = f
	}
	return f
}

// run starts a process and follows it.
func (a *attached) run(argv []string, options ...option) *feed {
	a.story.Helper()
	return a.feed(a.story.start(argv, options...))
}

// take returns what came of one process, acknowledged. A process that has closed
// has an end, like a stream of its own.
func (a *attached) take(id string, f *feed) ([]*execwirev1.ProcessEvent, error) {
	for len(f.waiting) == 0 {
		if f.totals != nil {
			return nil, io.EOF
		}
		if err := a.next(); err != nil {
			return nil, err
		}
	}
	events := f.waiting
	f.waiting = nil
	if last := events[len(events)-1].GetSeq(); !f.silent {
		a.acknowledge(id, last)
	}
	return events, nil
}

// next takes one message.
func (a *attached) next() error {
	response, err := a.stream.Recv()
	if err != nil {
		return err
	}
	switch m := response.GetMessage().(type) {
	case *execwirev1.AttachSessionResponse_Events:
		f := a.feed(m.Events.GetProcessId())
		f.waiting = append(f.waiting, m.Events.GetEvents()...)
		a.got = append(a.got, m.Events.GetProcessId())
	case *execwirev1.AttachSessionResponse_Ping:
		if a.pings++; !a.deaf {
			_ = a.stream.Send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Pong{
				Pong: &execwirev1.SessionPong{Nonce: m.Ping.GetNonce()}}})
		}
	case *execwirev1.AttachSessionResponse_Released:
		a.released = append(a.released, m.Released.GetProcessId())
	default:
		a.story.Errorf("the feed says %v", response)
	}
	return nil
}

// acknowledge does not care whether the stream is still there: the next receive
// tells.
func (a *attached) acknowledge(id string, seq uint64) {
	_ = a.stream.Send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Acknowledge{
		Acknowledge: &execwirev1.SessionAcknowledge{ProcessId: id, Seq: seq}}})
}

// failure drops what comes until the stream ends, and returns how it does.
func (a *attached) failure() error {
	for {
		if err := a.next(); err != nil {
			return err
		}
	}
}

// detach ends the attachment as asked for.
func (a *attached) detach() {
	a.story.Helper()
	if err := a.stream.Send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Detach{
		Detach: &execwirev1.SessionDetach{}}}); err != nil {
		a.story.Fatalf("detaching: %v", err)
	}
	if err := a.failure(); !isEnd(err) {
		a.story.Errorf("detaching ended the stream with %v, want its end", err)
	}
}

// disconnect breaks the connection: the wire, or in process the call.
func (a *attached) disconnect() {
	a.story.Helper()
	if a.story.wire == nil {
		a.leave(errDisconnect)
	} else if a.story.wire.cut() == 0 {
		a.story.Fatal("there was no connection to cut")
	}
	if err := a.failure(); isEnd(err) {
		a.story.Fatal("the stream outlived its connection")
	}
	a.story.awaitAttached(false)
}

// describe returns the session as the list has it, or nil.
func (s *story) describe(id string) *execwirev1.Session {
	s.Helper()
	list, err := s.leases.ListSessions(s.ctx, &execwirev1.ListSessionsRequest{})
	if err != nil {
		s.Fatalf("ListSessions: %v", err)
	}
	for _, session := range list.GetSessions() {
		if session.GetSessionId() == id {
			return session
		}
	}
	return nil
}

// awaitAttached waits until the server knows whether somebody is attached.
func (s *story) awaitAttached(attached bool) {
	s.Helper()
	eventually(s, fmt.Sprintf("attached is %v", attached), func() bool {
		described := s.describe(s.session)
		return described.GetAttached() == attached
	})
}

// awaitOver waits until the session is no more.
func (s *story) awaitOver(id string) {
	s.Helper()
	eventually(s, "the session is over", func() bool { return s.describe(id) == nil })
}

func (s *story) closeSession(id string) {
	s.Helper()
	if _, err := s.leases.CloseSession(s.ctx, &execwirev1.CloseSessionRequest{SessionId: id}); err != nil {
		s.Fatalf("CloseSession: %v", err)
	}
}
