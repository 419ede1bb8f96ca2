package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/internal/testproc"
	"github.com/execwire/execwire/internal/testrace"
	"github.com/execwire/execwire/server"
)

// attachment is a client's side of an AttachSession stream.
type attachment struct {
	f        *fixture
	stream   grpc.BidiStreamingClient[execwirev1.AttachSessionRequest, execwirev1.AttachSessionResponse]
	cut      context.CancelCauseFunc
	attached *execwirev1.SessionAttached
}

// tryAttach opens a stream with a first message and returns the answer.
func (f *fixture) tryAttach(first *execwirev1.AttachSessionRequest) (*attachment, error) {
	f.t.Helper()
	ctx, cut := context.WithCancelCause(f.ctx)
	f.t.Cleanup(func() { cut(errors.New("the test is over")) })
	stream, err := f.leases.AttachSession(ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	a := &attachment{f: f, stream: stream, cut: cut}
	if err := stream.Send(first); err != nil {
		f.t.Fatal(err)
	}
	m, err := stream.Recv()
	a.attached = m.GetAttached()
	return a, err
}

func attachMessage(m *execwirev1.SessionAttach) *execwirev1.AttachSessionRequest {
	return &execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Attach{Attach: m}}
}

func acknowledgeMessage(id string, seq uint64) *execwirev1.AttachSessionRequest {
	return &execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Acknowledge{
		Acknowledge: &execwirev1.SessionAcknowledge{ProcessId: id, Seq: seq}}}
}

func (f *fixture) attach(m *execwirev1.SessionAttach) *attachment {
	f.t.Helper()
	a, err := f.tryAttach(attachMessage(m))
	if err != nil || a.attached == nil {
		f.t.Fatalf("AttachSession answered %v, %v; want attached", a.attached, err)
	}
	return a
}

// end receives messages until the stream ends.
func (a *attachment) end() error {
	for {
		if _, err := a.stream.Recv(); err != nil {
			return err
		}
	}
}

// awaitDetached waits until the server reports that no client is attached.
func (f *fixture) awaitDetached(id string) {
	f.t.Helper()
	for {
		list, err := f.leases.ListSessions(f.ctx, &execwirev1.ListSessionsRequest{})
		if err != nil {
			f.t.Fatal(err)
		}
		i := slices.IndexFunc(list.GetSessions(), func(s *execwirev1.Session) bool { return s.GetSessionId() == id })
		if i < 0 || !list.GetSessions()[i].GetAttached() {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestAttach_MalformedRequest_NamesField(t *testing.T) {
	f := newFixture(t)
	long := strings.Repeat("x", server.MaxProcessIDBytes+1)
	many := map[string]uint64{}
	for i := range 10_001 {
		many[fmt.Sprint(i)] = 1
	}
	for field, m := range map[string][]*execwirev1.SessionAttach{
		"attach.session_id": {{SessionId: long}},
		"attach.after_seq": {
			{AfterSeq: map[string]uint64{"": 1}}, {AfterSeq: map[string]uint64{long: 1}}, {AfterSeq: many},
		},
		"attach.grace":         {{Grace: seconds(-1)}},
		"attach.when_detached": {{WhenDetached: 4}, {WhenDetached: -1}},
		"grace":                {{Grace: seconds(3601)}},
		"session_id":           {{SessionId: "default"}},
	} {
		for _, m := range m {
			_, err := f.tryAttach(attachMessage(m))
			expectFailure(t, err, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
			if got := violatedField(err); got != field {
				t.Errorf("the violated field is %q, want %q", got, field)
			}
		}
	}
	_, err := f.tryAttach(&execwirev1.AttachSessionRequest{})
	expectFailure(t, err, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
	for _, first := range []*execwirev1.AttachSessionRequest{
		acknowledgeMessage("p", 1),
		{Message: &execwirev1.AttachSessionRequest_Detach{Detach: &execwirev1.SessionDetach{}}},
		{Message: &execwirev1.AttachSessionRequest_Pong{Pong: &execwirev1.SessionPong{}}},
	} {
		_, err := f.tryAttach(first)
		expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE)
	}
	_, err = f.tryAttach(attachMessage(&execwirev1.SessionAttach{SessionId: "none"}))
	expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND)
}

func TestAttach_EmptyMessage_Fails(t *testing.T) {
	f := newFixture(t)
	stream, err := f.leases.AttachSession(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE)
}

func TestAttach_ProtocolViolation_EndsStream(t *testing.T) {
	for reason, violation := range map[execwirev1.ErrorReason]*execwirev1.AttachSessionRequest{
		execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE: attachMessage(&execwirev1.SessionAttach{}),
		execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD:      acknowledgeMessage("", 1),
		execwirev1.ErrorReason_ERROR_REASON_SEQ_NOT_REACHED:    acknowledgeMessage("p", 1_000_000),
	} {
		t.Run(reason.String(), func(t *testing.T) {
			f := newFixture(t)
			a := f.attach(&execwirev1.SessionAttach{})
			start := withStdin(command("p", "cat"))
			start.SessionId = a.attached.GetSession().GetSessionId()
			f.start(start)
			if err := a.stream.Send(violation); err != nil {
				t.Fatal(err)
			}
			code := map[execwirev1.ErrorReason]codes.Code{
				execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE: codes.FailedPrecondition,
				execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD:      codes.InvalidArgument,
				execwirev1.ErrorReason_ERROR_REASON_SEQ_NOT_REACHED:    codes.OutOfRange,
			}[reason]
			expectFailure(t, a.end(), code, reason)
			// The client can attach again.
			_, err := f.tryAttach(attachMessage(&execwirev1.SessionAttach{SessionId: start.SessionId, AfterSeq: map[string]uint64{"p": 1_000_000}}))
			expectFailure(t, err, codes.OutOfRange, execwirev1.ErrorReason_ERROR_REASON_SEQ_NOT_REACHED)
			f.attach(&execwirev1.SessionAttach{SessionId: start.SessionId, AfterSeq: map[string]uint64{"unknown": 7}})
		})
	}
}

func TestSessions_MalformedRequest_NamesField(t *testing.T) {
	f := newFixture(t)
	long := strings.Repeat("x", server.MaxProcessIDBytes+1)
	list := func(m *execwirev1.ListSessionsRequest) error {
		_, err := f.leases.ListSessions(f.ctx, m)
		return err
	}
	closing := func(id string) error {
		_, err := f.leases.CloseSession(f.ctx, &execwirev1.CloseSessionRequest{SessionId: id})
		return err
	}
	grant := func(m *execwirev1.GrantSessionRequest) error {
		_, err := f.leases.GrantSession(f.ctx, m)
		return err
	}
	for field, failed := range map[string][]error{
		"page_size":  {list(&execwirev1.ListSessionsRequest{PageSize: -1})},
		"page_token": {list(&execwirev1.ListSessionsRequest{PageToken: long})},
		"session_id": {
			closing(""), closing(long), grant(&execwirev1.GrantSessionRequest{Principal: "x"}),
			grant(&execwirev1.GrantSessionRequest{SessionId: "default", Principal: "x", Access: 1}),
		},
		"principal": {
			grant(&execwirev1.GrantSessionRequest{SessionId: "s"}),
			grant(&execwirev1.GrantSessionRequest{SessionId: "s", Principal: long}),
		},
		"access": {grant(&execwirev1.GrantSessionRequest{SessionId: "s", Principal: "x", Access: 3})},
	} {
		for _, err := range failed {
			expectFailure(t, err, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
			if got := violatedField(err); got != field {
				t.Errorf("the violated field is %q, want %q", got, field)
			}
		}
	}
	expectFailure(t, closing("none"), codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND)
	expectFailure(t, grant(&execwirev1.GrantSessionRequest{SessionId: "none", Principal: "x", Access: 1}),
		codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND)
}

// The handler blocks sending to a client that does not read. It still handles messages of
// the client, and notices its end at once.
func TestAttach_ClientNotReading_CanAcknowledge(t *testing.T) {
	for name, leave := range map[string]func(a *attachment) error{
		"detach": func(a *attachment) error {
			return a.stream.Send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Detach{
				Detach: &execwirev1.SessionDetach{}}})
		},
		"half-close": func(a *attachment) error { return a.stream.CloseSend() },
		"mistake":    func(a *attachment) error { return a.stream.Send(attachMessage(&execwirev1.SessionAttach{})) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			a := f.attach(&execwirev1.SessionAttach{})
			id := a.attached.GetSession().GetSessionId()
			flood := command("p", testproc.Argv("flood", "-bytes", "8000000")...)
			flood.SessionId = id
			f.start(flood)
			for written := uint64(0); written < 600<<10; time.Sleep(time.Millisecond) {
				snapshot, err := f.processes.SnapshotOutput(f.ctx, &execwirev1.SnapshotOutputRequest{SessionId: id, ProcessId: "p"})
				if err != nil {
					t.Fatal(err)
				}
				written = snapshot.GetStreams()[0].GetTotalBytes()
			}
			if err := leave(a); err != nil {
				t.Fatal(err)
			}
			f.awaitDetached(id)
		})
	}
}

// A client that repeats the call does not get NOT_FOUND while processes of the session
// still run.
func TestCloseSession_Repeated_WaitsUntilClosed(t *testing.T) {
	f := newFixture(t)
	a := f.attach(&execwirev1.SessionAttach{})
	id := a.attached.GetSession().GetSessionId()
	held, err := f.sessions.Open(auth.InProcess.Name, id, session.AccessOwner)
	if err != nil {
		t.Fatal(err)
	}
	var all []*session.Process
	for i := range 20 {
		req := withStdin(command(fmt.Sprint(i), "/bin/cat"))
		req.SessionId = id
		f.start(req)
		p, err := held.Process(req.GetProcessId())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	ctx, cancel := context.WithCancelCause(f.ctx)
	go func() {
		_ = a.end() // closing has begun
		cancel(errors.New("gone"))
	}()
	_, _ = f.leases.CloseSession(ctx, &execwirev1.CloseSessionRequest{SessionId: id})
	_, err = f.leases.CloseSession(f.ctx, &execwirev1.CloseSessionRequest{SessionId: id})
	for _, p := range all {
		select {
		case <-p.Closed():
		default:
			t.Fatalf("closing again returns %v, and process %s still exists", err, p.ID())
		}
	}
}

func TestListSessions_Pages(t *testing.T) {
	f := newFixture(t)
	want := map[string]bool{}
	for range 5 {
		want[f.attach(&execwirev1.SessionAttach{}).attached.GetSession().GetSessionId()] = true
	}
	var got []string
	pages := 0
	for token := ""; pages == 0 || token != ""; pages++ {
		list, err := f.leases.ListSessions(f.ctx, &execwirev1.ListSessionsRequest{PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(list.GetSessions()); n == 0 || n > 2 {
			t.Fatalf("a page has %d sessions", n)
		}
		for _, s := range list.GetSessions() {
			got = append(got, s.GetSessionId())
		}
		token = list.GetNextPageToken()
	}
	if pages != 3 || len(got) != 5 || !slices.IsSorted(got) {
		t.Errorf("%d pages have the sessions %v", pages, got)
	}
	for _, id := range got {
		if !want[id] {
			t.Errorf("session %s has no principal", id)
		}
	}
}

// A page ends before it becomes too large to receive, because grants can be long.
func TestListSessions_BoundsPageBytes(t *testing.T) {
	testrace.WithoutRace(t)
	f := newFixture(t)
	for range 60 {
		id := f.attach(&execwirev1.SessionAttach{}).attached.GetSession().GetSessionId()
		for i := range 100 {
			if _, err := f.leases.GrantSession(f.ctx, &execwirev1.GrantSessionRequest{
				SessionId: id, Principal: fmt.Sprintf("%0256d", i), Access: execwirev1.SessionAccess_SESSION_ACCESS_VIEW}); err != nil {
				t.Fatal(err)
			}
		}
	}
	list, err := f.leases.ListSessions(f.ctx, &execwirev1.ListSessionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if size := proto.Size(list); size > 2<<20 || list.GetNextPageToken() == "" {
		t.Errorf("a page has %d sessions in %d bytes, and the token %q", len(list.GetSessions()), size, list.GetNextPageToken())
	}
}

// The longest output event fits a buffer of 32 KiB in an attachment, whose messages also name
// the process.
func TestAttach_LongestOutput_FitsBuffer(t *testing.T) {
	message := &execwirev1.AttachSessionResponse{Message: &execwirev1.AttachSessionResponse_Events{Events: &execwirev1.SessionEvents{
		ProcessId: strings.Repeat("x", 36),
		Events: []*execwirev1.ProcessEvent{{Seq: 1 << 20, Event: &execwirev1.ProcessEvent_Output{Output: &execwirev1.ProcessOutput{
			Stream: execwirev1.OutputStream_OUTPUT_STREAM_STDOUT, Offset: 1 << 32, Data: make([]byte, eventlog.MaxChunkBytes),
			ReadTime: &timestamppb.Timestamp{Seconds: 1 << 32, Nanos: 999_999_999}}}}}}}}
	if size := proto.Size(message); size > 32<<10 {
		t.Errorf("it has %d bytes", size)
	}
}
