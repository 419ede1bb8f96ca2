package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/inproc"
)

// scriptedServer sends the events of a test in a session, and records what it
// receives.
type scriptedServer struct {
	execwirev1.UnimplementedSessionServiceServer
	execwirev1.UnimplementedProcessServiceServer
	execwirev1.UnimplementedEnvironmentServiceServer

	feed chan *execwirev1.AttachSessionResponse
	end  chan error // the error with which the attachment ends

	// Called by the calls that cause events.
	write, signal func()
	// terminated is the response of TerminateProcess.
	terminated *execwirev1.TerminateProcessResponse
	// read implements ReadOutput; nil: it returns events up to last.
	read func(*execwirev1.ReadOutputRequest) *execwirev1.ReadOutputResponse
	// refuse returns the error of ReadOutput, and describe the response of GetProcess;
	// nil: no error, and an empty description.
	refuse   func(*execwirev1.ReadOutputRequest) error
	describe func() *execwirev1.Process
	// unknown is the error of GetProcess, if any.
	unknown error

	mu           sync.Mutex
	writeTimes   map[string]time.Duration     // guarded by mu; durations of writes to these processes, which do not call write
	labels       map[string]map[string]string // guarded by mu; labels of started processes
	last         map[string]uint64            // last seqs in ListProcesses and ReadOutput
	done         bool                         // ListProcesses reports all processes as closed and acknowledged
	closed       bool                         // ReadOutput reports the process as closed
	acknowledged []string                     // acknowledgements and pongs, in order
	finished     bool                         // CloseSession was called
}

const scriptedWindow = 1000

func newScriptedServer(t *testing.T) (*scriptedServer, *testServer) {
	s := &scriptedServer{feed: make(chan *execwirev1.AttachSessionResponse, 16), end: make(chan error, 1),
		last: map[string]uint64{}, labels: map[string]map[string]string{}, writeTimes: map[string]time.Duration{}}
	channel := inproc.New()
	execwirev1.RegisterSessionServiceServer(channel, s)
	execwirev1.RegisterProcessServiceServer(channel, s)
	execwirev1.RegisterEnvironmentServiceServer(channel, s)
	t.Cleanup(channel.Close)
	return s, &testServer{t: t, channel: channel}
}

func (s *scriptedServer) GetEnvironment(context.Context, *execwirev1.GetEnvironmentRequest) (*execwirev1.GetEnvironmentResponse, error) {
	return &execwirev1.GetEnvironmentResponse{}, nil
}

func (s *scriptedServer) AttachSession(stream grpc.BidiStreamingServer[execwirev1.AttachSessionRequest, execwirev1.AttachSessionResponse]) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	err := stream.Send(&execwirev1.AttachSessionResponse{Message: &execwirev1.AttachSessionResponse_Attached{
		Attached: &execwirev1.SessionAttached{Session: &execwirev1.Session{SessionId: "s"},
			OutputWindowBytes: scriptedWindow, OutputWindowEvents: scriptedWindow}}})
	if err != nil {
		return err
	}
	var listening sync.WaitGroup
	defer listening.Wait()
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	go func() { // ends with the stream; sending may block
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			s.note(m)
		}
	}()
	for {
		select {
		case m := <-s.feed:
			if err := stream.Send(m); err != nil {
				return err
			}
		case err := <-s.end:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *scriptedServer) note(m *execwirev1.AttachSessionRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m := m.GetMessage().(type) {
	case *execwirev1.AttachSessionRequest_Acknowledge:
		s.acknowledged = append(s.acknowledged, fmt.Sprintf("%s %d", m.Acknowledge.GetProcessId(), m.Acknowledge.GetSeq()))
	case *execwirev1.AttachSessionRequest_Pong:
		s.acknowledged = append(s.acknowledged, fmt.Sprintf("pong %d", m.Pong.GetNonce()))
	}
}

func (s *scriptedServer) ListProcesses(context.Context, *execwirev1.ListProcessesRequest) (*execwirev1.ListProcessesResponse, error) {
	list := &execwirev1.ListProcessesResponse{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, last := range s.last {
		list.Processes = append(list.Processes, &execwirev1.Process{ProcessId: id, LastSeq: last, State: s.state(), Labels: s.labels[id]})
	}
	return list, nil
}

func (s *scriptedServer) ReadOutput(ctx context.Context, req *execwirev1.ReadOutputRequest) (*execwirev1.ReadOutputResponse, error) {
	if s.refuse != nil {
		if err := s.refuse(req); err != nil {
			return nil, err
		}
	}
	if s.read != nil {
		return s.read(req), nil
	}
	answer := &execwirev1.ReadOutputResponse{NextAfterSeq: req.GetAfterSeq(), LastSeq: s.last[req.GetProcessId()], Closed: s.closed}
	for seq := req.GetAfterSeq() + 1; seq <= answer.GetLastSeq(); seq++ {
		answer.Events = append(answer.Events, outputEvent(seq, 1))
		answer.NextAfterSeq = seq
	}
	if len(answer.GetEvents()) == 0 && req.GetWait() != nil && !pause(ctx, req.GetWait().AsDuration()) {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return answer, nil
}

// pause waits, and reports false if ctx ends before.
func pause(ctx context.Context, long time.Duration) bool {
	late := time.NewTimer(long)
	defer late.Stop()
	select {
	case <-late.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *scriptedServer) state() execwirev1.ProcessState {
	if s.done {
		return execwirev1.ProcessState_PROCESS_STATE_CLOSED
	}
	return execwirev1.ProcessState_PROCESS_STATE_RUNNING
}

func (s *scriptedServer) GetProcess(context.Context, *execwirev1.GetProcessRequest) (*execwirev1.GetProcessResponse, error) {
	if s.unknown != nil {
		return nil, s.unknown
	}
	described := &execwirev1.Process{}
	if s.describe != nil {
		described = s.describe()
	}
	return &execwirev1.GetProcessResponse{Process: described}, nil
}

func (s *scriptedServer) StartProcess(_ context.Context, req *execwirev1.StartProcessRequest) (*execwirev1.StartProcessResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.labels[req.GetProcessId()] = req.GetLabels()
	return &execwirev1.StartProcessResponse{}, nil
}

func (s *scriptedServer) WriteStdin(ctx context.Context, req *execwirev1.WriteStdinRequest) (*execwirev1.WriteStdinResponse, error) {
	s.mu.Lock()
	writeTimes, slow := s.writeTimes[req.GetProcessId()]
	s.mu.Unlock()
	if !slow {
		s.write()
	} else if !pause(ctx, writeTimes) {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &execwirev1.WriteStdinResponse{}, nil
}

func (s *scriptedServer) SignalProcess(context.Context, *execwirev1.SignalProcessRequest) (*execwirev1.SignalProcessResponse, error) {
	s.signal()
	return &execwirev1.SignalProcessResponse{}, nil
}

func (s *scriptedServer) TerminateProcess(context.Context, *execwirev1.TerminateProcessRequest) (*execwirev1.TerminateProcessResponse, error) {
	s.signal()
	if s.terminated != nil {
		return s.terminated, nil
	}
	return &execwirev1.TerminateProcessResponse{}, nil
}

func (s *scriptedServer) CloseSession(context.Context, *execwirev1.CloseSessionRequest) (*execwirev1.CloseSessionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = true
	return &execwirev1.CloseSessionResponse{}, nil
}

func outputEvent(seq uint64, bytes int) *execwirev1.ProcessEvent {
	return &execwirev1.ProcessEvent{Seq: seq, Event: &execwirev1.ProcessEvent_Output{Output: &execwirev1.ProcessOutput{
		Stream: execwirev1.OutputStream_OUTPUT_STREAM_STDOUT, Data: make([]byte, bytes)}}}
}

func exitedEvent(seq uint64) *execwirev1.ProcessEvent {
	return &execwirev1.ProcessEvent{Seq: seq, Event: &execwirev1.ProcessEvent_Exited{Exited: &execwirev1.ProcessExited{}}}
}

func closedEvent(seq uint64) *execwirev1.ProcessEvent {
	return &execwirev1.ProcessEvent{Seq: seq, Event: &execwirev1.ProcessEvent_Closed{Closed: &execwirev1.ProcessClosed{}}}
}

// sendOutput sends output events of a process, one byte each.
func (s *scriptedServer) sendOutput(id string, seqs ...uint64) {
	var events []*execwirev1.ProcessEvent
	for _, seq := range seqs {
		events = append(events, outputEvent(seq, 1))
	}
	s.sendEvents(id, events...)
}

func (s *scriptedServer) sendEvents(id string, events ...*execwirev1.ProcessEvent) {
	s.feed <- &execwirev1.AttachSessionResponse{Message: &execwirev1.AttachSessionResponse_Events{
		Events: &execwirev1.SessionEvents{ProcessId: id, Events: events}}}
}

// acknowledgements returns the acknowledgements and pongs that were received.
func (s *scriptedServer) acknowledgements() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	acknowledged := slices.Clone(s.acknowledged)
	return strings.Join(acknowledged, ", ")
}
