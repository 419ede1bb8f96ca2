package harness

import (
	"context"
	"errors"
	"io"

	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/testowner"
)

// ErrDisconnect is the cause with which a test ends its streams.
var ErrDisconnect = errors.New("the test disconnects")

// Owner owns a process, in the form of its scenario. It reads only while one of its
// methods runs.
type Owner struct {
	*Follower
	Scenario *Scenario
	ID       string
	grace    *durationpb.Duration
	Stream   testowner.Stream
	Leave    context.CancelCauseFunc
	Started  *execwirev1.RunStarted

	Silent   bool   // acknowledges nothing
	Sent     uint64 // bytes of stdin
	Accepted uint64 // bytes of stdin that the server accepted
	Rejected []*execwirev1.RunRejected
}

// Run starts a process and owns it.
func (s *Scenario) Run(argv []string, options ...Option) *Owner {
	s.Helper()
	start := s.Request(argv, options...)
	o := &Owner{Follower: NewFollower(s, 0), Scenario: s, ID: start.GetProcess().GetProcessId(), grace: start.GetGrace()}
	o.open(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: start}})
	return o
}

// Own resumes an existing process after a sequence number.
func (s *Scenario) Own(id string, after uint64) *Owner {
	s.Helper()
	o := &Owner{Follower: NewFollower(s, after), Scenario: s, ID: id}
	o.Resume()
	return o
}

// Resume opens a new stream at the owner's position.
func (o *Owner) Resume() {
	o.T.Helper()
	o.open(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Resume{
		Resume: &execwirev1.RunResume{SessionId: o.Scenario.Session, ProcessId: o.ID, AfterSeq: o.Last, Grace: o.grace}}})
	if !o.Started.GetResumed() {
		o.T.Error("a resumed process counts as new")
	}
}

// open opens a stream and waits for its first response.
func (o *Owner) open(first *execwirev1.RunProcessRequest) {
	o.T.Helper()
	ctx, leave := context.WithCancelCause(o.Scenario.Ctx)
	stream, err := o.Scenario.own(ctx, o.Scenario.Processes)
	if err != nil {
		o.T.Fatalf("RunProcess: %v", err)
	}
	o.Scenario.Cleanup(func() { leave(ErrDisconnect) })
	o.Stream, o.Leave = stream, leave
	o.Receive = o.next
	o.Send(first)
	response, err := stream.Recv()
	if err != nil || response.GetStarted() == nil {
		o.T.Fatalf("RunProcess answered %v, %v; want started", response, err)
	}
	o.Started = response.GetStarted()
	o.Accepted = o.Started.GetStdinOffset()
}

// next receives one message, and acknowledges and returns its events.
func (o *Owner) next() ([]*execwirev1.ProcessEvent, error) {
	response, err := o.Stream.Recv()
	if err != nil {
		return nil, err
	}
	switch m := response.GetMessage().(type) {
	case *execwirev1.RunProcessResponse_StdinAccepted:
		o.Accepted = m.StdinAccepted.GetOffset()
	case *execwirev1.RunProcessResponse_Rejected:
		o.Rejected = append(o.Rejected, m.Rejected)
	case *execwirev1.RunProcessResponse_Started:
		o.T.Error("the server reported the start twice")
	}
	events := response.GetEvents().GetEvents()
	if len(events) > 0 && !o.Silent {
		o.Acknowledge(events[len(events)-1].GetSeq())
	}
	return events, nil
}

// Acknowledge ignores errors: the next receive reports them.
func (o *Owner) Acknowledge(seq uint64) {
	_ = o.Stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Acknowledge{
		Acknowledge: &execwirev1.RunAcknowledge{Seq: seq}}})
}

// Send sends a message on the stream.
func (o *Owner) Send(m *execwirev1.RunProcessRequest) {
	o.T.Helper()
	if err := o.Stream.Send(m); err != nil {
		_, why := o.Stream.Recv()
		o.T.Fatalf("failed to send on the stream: %v: %v", err, why)
	}
}

// Write sends input after all input sent before.
func (o *Owner) Write(text string) {
	o.T.Helper()
	o.WriteAt(o.Sent, text, false)
	o.Sent += uint64(len(text))
}

// EndInput closes stdin.
func (o *Owner) EndInput() {
	o.T.Helper()
	o.WriteAt(o.Sent, "", true)
}

// WriteAt sends input at an offset, and its end.
func (o *Owner) WriteAt(offset uint64, text string, end bool) {
	o.T.Helper()
	o.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Stdin{
		Stdin: &execwirev1.RunStdin{Offset: offset, Data: []byte(text), EndOfFile: end}}})
}

// Detach detaches from the process and waits for the end of the stream.
func (o *Owner) Detach() {
	o.T.Helper()
	o.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Detach{Detach: &execwirev1.RunDetach{}}})
	if err := o.Failure(); !IsEnd(err) {
		o.T.Errorf("detaching ended the stream with %v, want its end", err)
	}
}

// Watch follows a process as an observer.
func (s *Scenario) Watch(id string, after uint64) *Follower {
	s.Helper()
	return s.follow(&execwirev1.WatchProcessRequest{SessionId: s.Session, ProcessId: id, AfterSeq: after})
}

func (s *Scenario) follow(request *execwirev1.WatchProcessRequest) *Follower {
	s.Helper()
	stream, err := s.Processes.WatchProcess(s.Ctx, request)
	if err != nil {
		s.Fatalf("WatchProcess: %v", err)
	}
	f := NewFollower(s, request.GetAfterSeq())
	f.Receive = func() ([]*execwirev1.ProcessEvent, error) {
		response, err := stream.Recv()
		return response.GetEvents(), err
	}
	return f
}

// IsEnd reports whether a stream ended without an error.
func IsEnd(err error) bool { return errors.Is(err, io.EOF) }
