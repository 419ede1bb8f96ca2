package client

import (
	"context"
	"net"
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
)

type serverStream = grpc.BidiStreamingServer[execwirev1.RunProcessRequest, execwirev1.RunProcessResponse]

// script handles one stream of the fake server.
type script func(stream serverStream) error

// fakeServer plays one script per RunProcess call, in order, and records other calls.
type fakeServer struct {
	execwirev1.UnimplementedProcessServiceServer

	listener *bufconn.Listener
	server   *grpc.Server

	mu          sync.Mutex
	scripts     []script                                  // guarded by mu
	beyond      script                                    // guarded by mu
	calls       int                                       // guarded by mu
	terminated  []*execwirev1.TerminateProcessRequest     // guarded by mu
	onTerminate func(*execwirev1.TerminateProcessRequest) // guarded by mu
	onDial      func()                                    // guarded by mu; may block
	conns       []net.Conn                                // guarded by mu
}

// newFake serves scripts and returns a client for it. Calls beyond the scripts fail
// with Unavailable.
func newFake(t testing.TB, scripts ...script) (*fakeServer, *Client) {
	t.Helper()
	return newFakeWith(t, nil, scripts...)
}

// newFakeWith is newFake with more services; nil adds none.
func newFakeWith(t testing.TB, register func(*grpc.Server), scripts ...script) (*fakeServer, *Client) {
	t.Helper()
	f := &fakeServer{
		listener: bufconn.Listen(1 << 20),
		server:   grpc.NewServer(),
		scripts:  scripts,
		beyond:   func(serverStream) error { return status.Error(codes.Unavailable, "nothing listens") },
	}
	execwirev1.RegisterProcessServiceServer(f.server, f)
	if register != nil {
		register(f.server)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = f.server.Serve(f.listener) })
	conn, err := grpc.NewClient("passthrough:///fake",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithIdleTimeout(0),
		grpc.WithContextDialer(f.dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		f.server.Stop()
		serving.Wait()
	})
	return f, New(conn)
}

func (f *fakeServer) dial(ctx context.Context, _ string) (net.Conn, error) {
	f.mu.Lock()
	onDial := f.onDial
	f.mu.Unlock()
	if onDial != nil {
		onDial()
	}
	conn, err := f.listener.DialContext(ctx)
	if err == nil {
		f.mu.Lock()
		f.conns = append(f.conns, conn)
		f.mu.Unlock()
	}
	return conn, err
}

// cutConnections closes every connection; data in transit is lost.
func (f *fakeServer) cutConnections() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.conns {
		_ = conn.Close()
	}
	f.conns = nil
}

func (f *fakeServer) RunProcess(stream serverStream) error {
	f.mu.Lock()
	play := f.beyond
	if f.calls < len(f.scripts) {
		play = f.scripts[f.calls]
	}
	f.calls++
	f.mu.Unlock()
	return play(stream)
}

func (f *fakeServer) callCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

func (f *fakeServer) TerminateProcess(
	_ context.Context, request *execwirev1.TerminateProcessRequest,
) (*execwirev1.TerminateProcessResponse, error) {
	f.mu.Lock()
	f.terminated = append(f.terminated, request)
	react := f.onTerminate
	f.mu.Unlock()
	if react != nil {
		react(request)
	}
	return &execwirev1.TerminateProcessResponse{WasRunning: true}, nil
}

func (f *fakeServer) terminations() []*execwirev1.TerminateProcessRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.terminated
}

// serverError returns an error with the details of an execwire server.
func serverError(code codes.Code, reason execwirev1.ErrorReason, more ...func(*status.Status) *status.Status) error {
	st, err := status.New(code, "the server returns "+reason.String()).WithDetails(&errdetails.ErrorInfo{
		Domain: errorinfo.Domain,
		Reason: errorinfo.Name(reason),
	})
	if err != nil {
		panic(err) // the details are well known
	}
	for _, m := range more {
		st = m(st)
	}
	return st.Err()
}

// Messages and steps of scripts.

func started(offset uint64) *execwirev1.RunProcessResponse {
	return &execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_Started{
		Started: &execwirev1.RunStarted{
			Process:           &execwirev1.Process{ProcessId: "p", Pid: 1},
			StdinOffset:       offset,
			StdinWindowBytes:  64 << 10,
			OutputWindowBytes: 1 << 20,
		}}}
}

func events(list ...*execwirev1.ProcessEvent) *execwirev1.RunProcessResponse {
	return &execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_Events{
		Events: &execwirev1.RunEvents{Events: list}}}
}

func output(seq uint64, stream execwirev1.OutputStream, offset uint64, data string) *execwirev1.ProcessEvent {
	return &execwirev1.ProcessEvent{Seq: seq, Event: &execwirev1.ProcessEvent_Output{
		Output: &execwirev1.ProcessOutput{Stream: stream, Offset: offset, Data: []byte(data)}}}
}

func stdout(seq, offset uint64, data string) *execwirev1.ProcessEvent {
	return output(seq, execwirev1.OutputStream_OUTPUT_STREAM_STDOUT, offset, data)
}

func stderr(seq, offset uint64, data string) *execwirev1.ProcessEvent {
	return output(seq, execwirev1.OutputStream_OUTPUT_STREAM_STDERR, offset, data)
}

func exited(seq uint64, code int32) *execwirev1.ProcessEvent {
	return &execwirev1.ProcessEvent{Seq: seq, Event: &execwirev1.ProcessEvent_Exited{
		Exited: &execwirev1.ProcessExited{Exit: &execwirev1.ExitRecord{
			Status: &execwirev1.ExitRecord_ExitCode{ExitCode: code},
			Cause:  execwirev1.ExitCause_EXIT_CAUSE_EXITED,
		}}}}
}

func closed(seq uint64, totals ...uint64) *execwirev1.ProcessEvent {
	c := &execwirev1.ProcessClosed{}
	for i, n := range totals {
		c.Totals = append(c.Totals, &execwirev1.StreamTotal{
			Stream: execwirev1.OutputStream(i + 1), Bytes: n,
		})
	}
	return &execwirev1.ProcessEvent{Seq: seq, Event: &execwirev1.ProcessEvent_Closed{Closed: c}}
}

func gap(next, dropped uint64) *execwirev1.ProcessEvent {
	return &execwirev1.ProcessEvent{Event: &execwirev1.ProcessEvent_Gap{
		Gap: &execwirev1.OutputGap{FirstAvailableSeq: next, DroppedBytes: dropped}}}
}

// sends receives the first message, answers with responses, and returns err.
func sends(err error, responses ...*execwirev1.RunProcessResponse) script {
	return func(stream serverStream) error {
		if _, recvErr := stream.Recv(); recvErr != nil {
			return recvErr
		}
		for _, r := range responses {
			if sendErr := stream.Send(r); sendErr != nil {
				return sendErr
			}
		}
		return err
	}
}

var errCut = status.Error(codes.Unavailable, "cut")

func direct(argv ...string) *execwirev1.StartProcessRequest {
	return &execwirev1.StartProcessRequest{
		ProcessId: "p",
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
			Direct: &execwirev1.DirectCommand{Argv: argv, WorkingDirectory: "/"}}},
	}
}
