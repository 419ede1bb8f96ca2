package integration

import (
	"context"
	"errors"
	"io"

	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

var errDisconnect = errors.New("the test disconnects")

// owner is a RunProcess stream with the process it owns. Nothing happens behind
// its back: an owner that is asked for nothing reads nothing.
type owner struct {
	*follower
	story   *story
	id      string
	grace   *durationpb.Duration
	stream  execwirev1.ProcessService_RunProcessClient
	leave   context.CancelCauseFunc
	started *execwirev1.RunStarted

	silent   bool   // acknowledges nothing
	sent     uint64 // bytes of stdin
	accepted uint64 // of those the server has accepted
	rejected []*execwirev1.RunRejected
}

// run starts a process and owns it.
func (s *story) run(argv []string, options ...option) *owner {
	s.Helper()
	start := s.request(argv, options...)
	o := &owner{follower: newFollower(s, 0), story: s, id: start.GetProcess().GetProcessId(), grace: start.GetGrace()}
	o.open(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: start}})
	return o
}

// own takes a process that is there, after a seq.
func (s *story) own(id string, after uint64) *owner {
	s.Helper()
	o := &owner{follower: newFollower(s, after), story: s, id: id}
	o.resume()
	return o
}

// resume takes the process up where this owner is.
func (o *owner) resume() {
	o.t.Helper()
	o.open(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Resume{
		Resume: &execwirev1.RunResume{SessionId: o.story.session, ProcessId: o.id, AfterSeq: o.last, Grace: o.grace}}})
	if !o.started.GetResumed() {
		o.t.Error("a resumed process counts as new")
	}
}

// open begins a stream and waits for its first answer.
func (o *owner) open(first *execwirev1.RunProcessRequest) {
	o.t.Helper()
	ctx, leave := context.WithCancelCause(o.story.ctx)
	stream, err := o.story.processes.RunProcess(ctx)
	if err != nil {
		o.t.Fatalf("RunProcess: %v", err)
	}
	o.story.Cleanup(func() { leave(errDisconnect) })
	o.stream, o.leave = stream, leave
	o.receive = o.next
	o.send(first)
	response, err := stream.Recv()
	if err != nil || response.GetStarted() == nil {
		o.t.Fatalf("RunProcess answered %v, %v; want started", response, err)
	}
	o.started = response.GetStarted()
	o.accepted = o.started.GetStdinOffset()
}

// next takes one message and returns the events in it, acknowledged.
func (o *owner) next() ([]*execwirev1.ProcessEvent, error) {
	response, err := o.stream.Recv()
	if err != nil {
		return nil, err
	}
	switch m := response.GetMessage().(type) {
	case *execwirev1.RunProcessResponse_StdinAccepted:
		o.accepted = m.StdinAccepted.GetOffset()
	case *execwirev1.RunProcessResponse_Rejected:
		o.rejected = append(o.rejected, m.Rejected)
	case *execwirev1.RunProcessResponse_Started:
		o.t.Error("the process was said to run twice")
	}
	events := response.GetEvents().GetEvents()
	if len(events) > 0 && !o.silent {
		o.acknowledge(events[len(events)-1].GetSeq())
	}
	return events, nil
}

// acknowledge does not care whether the stream is still there: the next receive
// tells.
func (o *owner) acknowledge(seq uint64) {
	_ = o.stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Acknowledge{
		Acknowledge: &execwirev1.RunAcknowledge{Seq: seq}}})
}

func (o *owner) send(m *execwirev1.RunProcessRequest) {
	o.t.Helper()
	if err := o.stream.Send(m); err != nil {
		_, why := o.stream.Recv()
		o.t.Fatalf("failed to send on the stream: %v: %v", err, why)
	}
}

// write sends input that follows what was sent before.
func (o *owner) write(text string) {
	o.t.Helper()
	o.writeAt(o.sent, text, false)
	o.sent += uint64(len(text))
}

// endInput closes stdin.
func (o *owner) endInput() {
	o.t.Helper()
	o.writeAt(o.sent, "", true)
}

func (o *owner) writeAt(offset uint64, text string, end bool) {
	o.t.Helper()
	o.send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Stdin{
		Stdin: &execwirev1.RunStdin{Offset: offset, Data: []byte(text), EndOfFile: end}}})
}

// awaitAccepted waits until the server has accepted input up to the offset.
func (o *owner) awaitAccepted(offset uint64) {
	o.t.Helper()
	for o.accepted < offset {
		o.step()
	}
}

func (o *owner) resize(rows, columns uint32) {
	o.t.Helper()
	o.send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Resize{
		Resize: &execwirev1.TerminalSize{Rows: rows, Columns: columns}}})
}

func (o *owner) signal(signal execwirev1.Signal, target execwirev1.SignalTarget) {
	o.t.Helper()
	o.send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Signal{
		Signal: &execwirev1.RunSignal{Signal: signal, Target: target}}})
}

func (o *owner) terminate(how *execwirev1.Termination) {
	o.t.Helper()
	o.send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Terminate{Terminate: how}})
}

// awaitRejected waits until the server says that something was not done, and
// checks why.
func (o *owner) awaitRejected(want execwirev1.ErrorReason) {
	o.t.Helper()
	for len(o.rejected) == 0 {
		o.step()
	}
	if got := o.rejected[0]; got.GetReason() != want || got.GetMessage() == "" {
		o.t.Errorf("rejected with %v, want %v and words for people", got, want)
	}
	o.rejected = o.rejected[1:]
}

// disconnect breaks the connection: the wire, or in process the call.
func (o *owner) disconnect() {
	o.t.Helper()
	if o.story.wire == nil {
		o.leave(errDisconnect)
	} else if o.story.wire.cut() == 0 {
		o.t.Fatal("there was no connection to cut")
	}
	acknowledged := o.silent
	o.silent = true // what still comes is lost
	if isEnd(o.failure()) {
		o.t.Fatal("the stream outlived its connection")
	}
	o.silent = acknowledged
	o.story.awaitOwned(o.id, false)
}

// detach gives the process up and waits for the stream to end.
func (o *owner) detach() {
	o.t.Helper()
	o.send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Detach{Detach: &execwirev1.RunDetach{}}})
	if err := o.failure(); !isEnd(err) {
		o.t.Errorf("detaching ended the stream with %v, want its end", err)
	}
}

// watch follows a process as an observer.
func (s *story) watch(id string, after uint64) *follower {
	s.Helper()
	return s.follow(&execwirev1.WatchProcessRequest{SessionId: s.session, ProcessId: id, AfterSeq: after})
}

// watchLossless follows a process and holds it back.
func (s *story) watchLossless(id string) *follower {
	s.Helper()
	return s.follow(&execwirev1.WatchProcessRequest{SessionId: s.session, ProcessId: id, Lossless: true})
}

func (s *story) follow(request *execwirev1.WatchProcessRequest) *follower {
	s.Helper()
	stream, err := s.processes.WatchProcess(s.ctx, request)
	if err != nil {
		s.Fatalf("WatchProcess: %v", err)
	}
	f := newFollower(s, request.GetAfterSeq())
	f.receive = func() ([]*execwirev1.ProcessEvent, error) {
		response, err := stream.Recv()
		return response.GetEvents(), err
	}
	return f
}

// isEnd reports whether a stream ended without an error.
func isEnd(err error) bool { return errors.Is(err, io.EOF) }
