package client

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// sessionScript handles one attachment of a fake server, whose attach it has received.
type sessionScript func(s *fakeAttachment, attach *execwirev1.SessionAttach) error

// fakeSessions plays one script per AttachSession call, in order. Calls beyond the
// scripts fail with Unavailable.
type fakeSessions struct {
	execwirev1.UnimplementedSessionServiceServer

	mu      sync.Mutex
	scripts []sessionScript // guarded by mu; not yet played
	closed  []string        // guarded by mu; sessions that CloseSession was called for
	// onClose answers CloseSession; nil succeeds.
	onClose func() error
}

// newFakeSessions serves scripts and returns a client for it.
func newFakeSessions(t testing.TB, scripts ...sessionScript) (*fakeSessions, *Client) {
	f := &fakeSessions{scripts: scripts}
	_, c := newFakeWith(t, func(server *grpc.Server) { execwirev1.RegisterSessionServiceServer(server, f) })
	return f, c
}

func (f *fakeSessions) AttachSession(stream grpc.BidiStreamingServer[execwirev1.AttachSessionRequest, execwirev1.AttachSessionResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	f.mu.Lock()
	if len(f.scripts) == 0 {
		f.mu.Unlock()
		return status.Error(codes.Unavailable, "nothing listens")
	}
	play := f.scripts[0]
	f.scripts = f.scripts[1:]
	f.mu.Unlock()
	return play(&fakeAttachment{stream: stream}, first.GetAttach())
}

func (f *fakeSessions) CloseSession(_ context.Context, req *execwirev1.CloseSessionRequest) (*execwirev1.CloseSessionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = append(f.closed, req.GetSessionId())
	if f.onClose != nil {
		return nil, f.onClose()
	}
	return &execwirev1.CloseSessionResponse{}, nil
}

// fakeAttachment is the server's end of an attachment.
type fakeAttachment struct {
	stream grpc.BidiStreamingServer[execwirev1.AttachSessionRequest, execwirev1.AttachSessionResponse]
}

// attached grants the lease with a grace of 30 s and windows of 1000 bytes and
// 100 events.
func (a *fakeAttachment) attached() error {
	return a.stream.Send(&execwirev1.AttachSessionResponse{Message: &execwirev1.AttachSessionResponse_Attached{
		Attached: &execwirev1.SessionAttached{
			Session:           &execwirev1.Session{SessionId: "s", Attached: true, Grace: durationpb.New(assumedGrace)},
			OutputWindowBytes: 1000, OutputWindowEvents: 100,
		}}})
}

func (a *fakeAttachment) events(id string, list ...*execwirev1.ProcessEvent) error {
	return a.stream.Send(&execwirev1.AttachSessionResponse{Message: &execwirev1.AttachSessionResponse_Events{
		Events: &execwirev1.SessionEvents{ProcessId: id, Events: list}}})
}

func (a *fakeAttachment) released(id string) error {
	return a.stream.Send(&execwirev1.AttachSessionResponse{Message: &execwirev1.AttachSessionResponse_Released{
		Released: &execwirev1.SessionProcessReleased{ProcessId: id}}})
}

func (a *fakeAttachment) ping(nonce uint64) error {
	return a.stream.Send(&execwirev1.AttachSessionResponse{Message: &execwirev1.AttachSessionResponse_Ping{
		Ping: &execwirev1.SessionPing{Nonce: nonce}}})
}

// expectAcknowledged receives exactly these acknowledgements, in any order.
func (a *fakeAttachment) expectAcknowledged(t *testing.T, want map[string]uint64) {
	t.Helper()
	got := map[string]uint64{}
	for range want {
		m, err := a.stream.Recv()
		if err != nil || m.GetAcknowledge() == nil {
			t.Errorf("received %v, %v; want an acknowledgement", m, err)
			return
		}
		got[m.GetAcknowledge().GetProcessId()] = m.GetAcknowledge().GetSeq()
	}
	if !maps.Equal(got, want) {
		t.Errorf("acknowledged was %v, want %v", got, want)
	}
}

// awaitDetach skips messages until the detach.
func (a *fakeAttachment) awaitDetach() error {
	for {
		m, err := a.stream.Recv()
		if err != nil || m.GetDetach() != nil {
			return err
		}
	}
}

// granted returns a script that grants the lease and continues with play.
func granted(play func(a *fakeAttachment) error) sessionScript {
	return func(a *fakeAttachment, _ *execwirev1.SessionAttach) error {
		if err := a.attached(); err != nil {
			return err
		}
		return play(a)
	}
}

// untilDetached grants the lease and waits for the detach.
var untilDetached = granted((*fakeAttachment).awaitDetach)

// firstError returns the first error of a script's steps.
func firstError(steps ...error) error {
	i := slices.IndexFunc(steps, func(err error) bool { return err != nil })
	if i < 0 {
		return nil
	}
	return steps[i]
}
