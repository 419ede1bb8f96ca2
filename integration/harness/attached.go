package harness

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Attached is an AttachSession stream and the session that it leases, which becomes
// the session of its scenario. It reads only while one of its methods runs.
type Attached struct {
	Scenario *Scenario
	Stream   execwirev1.SessionService_AttachSessionClient
	Leave    context.CancelCauseFunc
	Response *execwirev1.SessionAttached

	IgnorePings bool // answers no pings
	Pings       int
	Released    []string
	Feeds       map[string]*Feed
	Got         []string // the processes of the events received, by message
}

// Feed is the events of one process on an attachment.
type Feed struct {
	*Follower
	ID      string
	Silent  bool // acknowledges nothing
	Waiting []*execwirev1.ProcessEvent
}

// Lease changes how a session is attached.
type Lease func(*execwirev1.SessionAttach)

// WithLeaseGrace sets how long a session outlives its attachment.
func WithLeaseGrace(d time.Duration) Lease {
	return func(m *execwirev1.SessionAttach) { m.Grace = durationpb.New(d) }
}

// WhenDetached sets what happens to output while nothing is attached.
func WhenDetached(policy execwirev1.WhenDetached) Lease {
	return func(m *execwirev1.SessionAttach) { m.WhenDetached = policy }
}

// Values of WhenDetached.
const (
	Block   = execwirev1.WhenDetached_WHEN_DETACHED_BLOCK
	Discard = execwirev1.WhenDetached_WHEN_DETACHED_DISCARD_OLDEST
)

// Lease attaches to a new session.
func (s *Scenario) Lease(options ...Lease) *Attached {
	s.Helper()
	a := &Attached{Scenario: s, Feeds: map[string]*Feed{}}
	s.Session = ""
	a.Attach(options...)
	if a.Response.GetResumed() {
		s.Error("a new session counts as resumed")
	}
	return a
}

// Attach attaches, and fails the test if the server refuses.
func (a *Attached) Attach(options ...Lease) {
	a.Scenario.Helper()
	if err := a.TryAttach(options...); err != nil {
		a.Scenario.Fatalf("AttachSession: %v", err)
	}
}

// TryAttach attaches after the last events that were checked, and drops those that
// were received and not checked.
func (a *Attached) TryAttach(options ...Lease) error {
	a.Scenario.Helper()
	m := &execwirev1.SessionAttach{SessionId: a.Scenario.Session, AfterSeq: map[string]uint64{}}
	for id, f := range a.Feeds {
		if f.Last > 0 {
			m.AfterSeq[id] = f.Last
		}
		f.Waiting = nil
	}
	for _, option := range options {
		option(m)
	}
	ctx, leave := context.WithCancelCause(a.Scenario.Ctx)
	a.Scenario.Cleanup(func() { leave(ErrDisconnect) })
	stream, err := a.Scenario.Leases.AttachSession(ctx)
	if err == nil {
		err = stream.Send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Attach{Attach: m}})
	}
	if err != nil && !IsEnd(err) {
		return err
	}
	response, err := stream.Recv()
	if err != nil {
		return err
	}
	if response.GetAttached() == nil {
		a.Scenario.Fatalf("the first answer is %v, want attached", response)
	}
	a.Stream, a.Leave, a.Response = stream, leave, response.GetAttached()
	a.Scenario.Session = a.Response.GetSession().GetSessionId()
	return nil
}

// MetadataOf returns the metadata of an error.
func MetadataOf(err error) map[string]string {
	if typed, ok := errors.AsType[*client.Error](client.FromRPC(err)); ok {
		return typed.Metadata
	}
	return nil
}
