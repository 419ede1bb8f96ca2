package session

import (
	"fmt"
	"io"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// again attaches to the session again, after the received events.
func again(a *harness.Attached, options ...harness.Lease) {
	a.Scenario.Helper()
	a.Attach(options...)
	if !a.Response.GetResumed() {
		a.Scenario.Error("a session that was there counts as new")
	}
}

// feed follows one process of the session.
func receiveFrom(a *harness.Attached, id string) *harness.Feed {
	f := a.Feeds[id]
	if f == nil {
		f = &harness.Feed{Follower: harness.NewFollower(a.Scenario, 0), ID: id}
		f.Receive = func() ([]*execwirev1.ProcessEvent, error) { return nextEventsOf(a, id, f) }
		a.Feeds[id] = f
	}
	return f
}

// run starts a process and follows it.
func runAttached(a *harness.Attached, argv []string, options ...harness.Option) *harness.Feed {
	a.Scenario.Helper()
	return receiveFrom(a, a.Scenario.Start(argv, options...))
}

// nextEventsOf returns and acknowledges the next events of one process. After its close it
// returns io.EOF, like a separate stream.
func nextEventsOf(a *harness.Attached, id string, f *harness.Feed) ([]*execwirev1.ProcessEvent, error) {
	for len(f.Waiting) == 0 {
		if f.Totals != nil {
			return nil, io.EOF
		}
		if err := next(a); err != nil {
			return nil, err
		}
	}
	events := f.Waiting
	f.Waiting = nil
	if last := events[len(events)-1].GetSeq(); !f.Silent {
		acknowledge(a, id, last)
	}
	return events, nil
}

// next takes one message.
func next(a *harness.Attached) error {
	response, err := a.Stream.Recv()
	if err != nil {
		return err
	}
	switch m := response.GetMessage().(type) {
	case *execwirev1.AttachSessionResponse_Events:
		f := receiveFrom(a, m.Events.GetProcessId())
		f.Waiting = append(f.Waiting, m.Events.GetEvents()...)
		a.Got = append(a.Got, m.Events.GetProcessId())
	case *execwirev1.AttachSessionResponse_Ping:
		if a.Pings++; !a.IgnorePings {
			_ = a.Stream.Send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Pong{
				Pong: &execwirev1.SessionPong{Nonce: m.Ping.GetNonce()}}})
		}
	case *execwirev1.AttachSessionResponse_Released:
		a.Released = append(a.Released, m.Released.GetProcessId())
	default:
		a.Scenario.Errorf("the feed delivers %v", response)
	}
	return nil
}

// acknowledge ignores errors: the next receive reports them.
func acknowledge(a *harness.Attached, id string, seq uint64) {
	_ = a.Stream.Send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Acknowledge{
		Acknowledge: &execwirev1.SessionAcknowledge{ProcessId: id, Seq: seq}}})
}

// failure drops messages until the stream ends, and returns its error.
func failure(a *harness.Attached) error {
	for {
		if err := next(a); err != nil {
			return err
		}
	}
}

// detach ends the attachment with a detach message.
func detach(a *harness.Attached) {
	a.Scenario.Helper()
	if err := a.Stream.Send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Detach{
		Detach: &execwirev1.SessionDetach{}}}); err != nil {
		a.Scenario.Fatalf("detaching: %v", err)
	}
	if err := failure(a); !harness.IsEnd(err) {
		a.Scenario.Errorf("detaching ended the stream with %v, want its end", err)
	}
}

// disconnect cuts the connection, or in process the call.
func disconnect(a *harness.Attached) {
	a.Scenario.Helper()
	if a.Scenario.Proxy == nil {
		a.Leave(harness.ErrDisconnect)
	} else if a.Scenario.Proxy.Cut() == 0 {
		a.Scenario.Fatal("there was no connection to cut")
	}
	if err := failure(a); harness.IsEnd(err) {
		a.Scenario.Fatal("the stream outlived its connection")
	}
	awaitAttached(a.Scenario, false)
}

// describe returns the session as the list has it, or nil.
func describeSession(s *harness.Scenario, id string) *execwirev1.Session {
	s.Helper()
	list, err := s.Leases.ListSessions(s.Ctx, &execwirev1.ListSessionsRequest{})
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

// awaitAttached waits until the server reports whether the session is attached.
func awaitAttached(s *harness.Scenario, attached bool) {
	s.Helper()
	harness.Eventually(s, fmt.Sprintf("attached is %v", attached), func() bool {
		described := describeSession(s, s.Session)
		return described.GetAttached() == attached
	})
}

// awaitOver waits until the session does not exist.
func awaitOver(s *harness.Scenario, id string) {
	s.Helper()
	harness.Eventually(s, "the session is over", func() bool { return describeSession(s, id) == nil })
}

func closeSession(s *harness.Scenario, id string) {
	s.Helper()
	if _, err := s.Leases.CloseSession(s.Ctx, &execwirev1.CloseSessionRequest{SessionId: id}); err != nil {
		s.Fatalf("CloseSession: %v", err)
	}
}
