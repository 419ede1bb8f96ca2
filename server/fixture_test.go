package server_test

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/httpclient"
	"github.com/execwire/execwire/internal/inproc"
	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/ports"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/internal/testowner"
	"github.com/execwire/execwire/internal/testproc"
	"github.com/execwire/execwire/server"
)

func TestMain(m *testing.M) {
	testproc.Main()
	sandbox.Main()
	server.FileWorkerMain()
	leakcheck.Main(m)
}

// testTimeout is how long a test waits for an expected event.
const testTimeout = 2 * time.Minute

// fixture is a server in this process with clients for it.
type fixture struct {
	t         *testing.T
	ctx       context.Context
	sessions  *session.Registry
	processes execwirev1.ProcessServiceClient
	environ   execwirev1.EnvironmentServiceClient
	leases    execwirev1.SessionServiceClient
	files     execwirev1.FileSystemServiceClient
	http      execwirev1.HttpServiceClient
	ports     execwirev1.PortServiceClient
	server    *server.Server
	own       testowner.Open
}

// settings are the options of a fixture.
type settings struct {
	limits    server.Limits
	sessions  session.Config
	principal func() auth.Principal
	logger    *slog.Logger
	http      *httpclient.Client
	ports     *ports.Network
	// The forms of commands that are disabled.
	noDirect, noPrepared bool
	onContent            func()
	// The sandboxes of the server, and the policy that it requires.
	sandboxes *sandbox.Sandboxes
	required  *execwirev1.SandboxPolicy
	process   process.Config
	own       testowner.Open // how an owner owns a process; the default is a RunProcess stream
}

func newFixture(t *testing.T, change ...func(*settings)) *fixture {
	t.Helper()
	set := settings{
		limits: server.Limits{
			ServerLimits: &execwirev1.ServerLimits{
				RetainedOutputBytes: 1 << 20, RetainedEvents: 50_000, SnapshotBytes: 64 << 10, ReadersPerProcess: 64,
				StdinWriteBytes: 1 << 20, StdinQueueBytes: 1 << 20, MessageBytes: 4 << 20, MaxWait: durationpb.New(time.Minute), ReadFileBytes: 1 << 20,
				UploadRetention: durationpb.New(10 * time.Minute), UploadsPerPrincipal: 4,
				WatchesPerPrincipal: 10, AwaitedPathsPerPrincipal: 2000, WatchedDirectoriesPerWatch: 1000, WatchPendingBytes: 1 << 20,
			},
			AbandonedUploads: 4,
			FileWorkers:      4, FileWorkersTotal: 8, FileWorkerIdle: time.Minute,
		},
		sessions:  session.Config{DefaultGrace: 30 * time.Second, MaxGrace: time.Hour, ClosedRetention: 30 * time.Second},
		principal: func() auth.Principal { return auth.InProcess },
		http:      httpclient.New(httpclient.Options{HeadBytes: 16 << 10, PerOwner: 3}),
		own:       testowner.Run,
	}
	for _, f := range change {
		f(&set)
	}
	set.process.StdinQueueBytes, set.process.MaxWriteBytes = int(set.limits.StdinQueueBytes), int(set.limits.StdinWriteBytes)
	urls, err := auth.NewFileURLKeys("", nil)
	if err != nil {
		t.Fatal(err)
	}
	set.limits.NoDirect, set.limits.NoPrepared, set.limits.FileURLMaxAge = set.noDirect, set.noPrepared, time.Hour
	supervisor := process.NewSupervisor(set.process)
	sessions := session.NewRegistry(supervisor, set.sessions)
	srv := server.New(server.Config{
		Sessions:     sessions,
		HTTP:         set.http,
		Ports:        set.ports,
		Limits:       set.limits,
		Authenticate: func(context.Context) (auth.Caller, error) { return auth.Unrestricted(set.principal()), nil },
		Logger:       set.logger,
		Version:      "test",
		KillMethod:   supervisor.KillMethod(),
		Sandboxes:    set.sandboxes,
		OnContent:    set.onContent,
		FileURLs:     urls,

		RequiredSandbox: set.required,

		Environ: []string{"PATH=/usr/bin:/bin", "HOME=/home/test", "API_TOKEN=hidden"},
	})
	channel := inproc.New(inproc.WithUnaryInterceptors(srv.UnaryInterceptors()...), inproc.WithStreamInterceptors(srv.StreamInterceptors()...))
	srv.Register(channel)
	ctx, cancel := context.WithTimeoutCause(context.Background(), testTimeout, context.DeadlineExceeded)
	t.Cleanup(func() {
		cancel()
		if err := sessions.Close(context.Background()); err != nil {
			t.Errorf("closing the sessions: %v", err)
		}
		channel.Close()
		srv.Close()
	})
	return &fixture{
		t: t, ctx: ctx, sessions: sessions,
		processes: execwirev1.NewProcessServiceClient(channel),
		environ:   execwirev1.NewEnvironmentServiceClient(channel),
		leases:    execwirev1.NewSessionServiceClient(channel),
		files:     execwirev1.NewFileSystemServiceClient(channel),
		http:      execwirev1.NewHttpServiceClient(channel),
		ports:     execwirev1.NewPortServiceClient(channel),
		server:    srv,
		own:       set.own,
	}
}

// inEachForm runs a test in each form of ownership. It passes form on to newFixture.
func inEachForm(t *testing.T, test func(t *testing.T, form func(*settings))) {
	t.Helper()
	for name, own := range testowner.Forms {
		t.Run(name, func(t *testing.T) { test(t, func(s *settings) { s.own = own }) })
	}
}

// shell is a start request for a shell command.
func shell(id, script string) *execwirev1.StartProcessRequest {
	return command(id, "/bin/sh", "-c", script)
}

// command is a start request for a command line.
func command(id string, argv ...string) *execwirev1.StartProcessRequest {
	return &execwirev1.StartProcessRequest{
		ProcessId: id,
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{Direct: &execwirev1.DirectCommand{
			Argv: argv, WorkingDirectory: "/", Env: map[string]string{"PATH": "/usr/bin:/bin"}}}},
	}
}

// withStdin gives a start request a pipe for stdin.
func withStdin(req *execwirev1.StartProcessRequest) *execwirev1.StartProcessRequest {
	req.Io = &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Pipes{Pipes: &execwirev1.PipeIo{Stdin: execwirev1.StdinMode_STDIN_MODE_PIPE}}}
	return req
}

// withTerminal gives a start request a terminal.
func withTerminal(req *execwirev1.StartProcessRequest, rows, columns uint32) *execwirev1.StartProcessRequest {
	req.Io = &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Terminal{Terminal: &execwirev1.TerminalIo{
		Size: &execwirev1.TerminalSize{Rows: rows, Columns: columns}}}}
	return req
}

func (f *fixture) start(req *execwirev1.StartProcessRequest) *execwirev1.Process {
	f.t.Helper()
	resp, err := f.processes.StartProcess(f.ctx, req)
	if err != nil {
		f.t.Fatalf("StartProcess: %v", err)
	}
	return resp.GetProcess()
}

func (f *fixture) waitClosed(id string) *execwirev1.Process {
	f.t.Helper()
	resp, err := f.processes.WaitProcess(f.ctx, &execwirev1.WaitProcessRequest{
		ProcessId: id, Condition: &execwirev1.WaitProcessRequest_Closed{Closed: &execwirev1.WaitForClosed{}}})
	if err != nil || !resp.GetSatisfied() {
		f.t.Fatalf("WaitProcess: %v, %v", resp, err)
	}
	return resp.GetProcess()
}

// output collects the events of one process, and fails on sequence numbers or offsets that
// are not contiguous.
type output struct {
	t      *testing.T
	seq    uint64
	bytes  map[execwirev1.OutputStream][]byte
	gaps   []*execwirev1.OutputGap
	exit   *execwirev1.ExitRecord
	closed *execwirev1.ProcessClosed
}

func newOutput(t *testing.T, afterSeq uint64) *output {
	return &output{t: t, seq: afterSeq, bytes: map[execwirev1.OutputStream][]byte{}}
}

func (o *output) add(events ...*execwirev1.ProcessEvent) {
	o.t.Helper()
	for _, e := range events {
		if gap := e.GetGap(); gap != nil {
			o.gaps = append(o.gaps, gap)
			o.seq = gap.GetFirstAvailableSeq() - 1
			continue
		}
		if e.GetSeq() != o.seq+1 {
			o.t.Fatalf("event %d follows %d", e.GetSeq(), o.seq)
		}
		o.seq = e.GetSeq()
		if o.closed != nil {
			o.t.Fatalf("received %v after closed", e)
		}
		switch e := e.GetEvent().(type) {
		case *execwirev1.ProcessEvent_Output:
			stream := e.Output.GetStream()
			if len(o.gaps) == 0 && o.seq > 0 && e.Output.GetOffset() < uint64(len(o.bytes[stream])) {
				o.t.Fatalf("output at %d repeats output received up to %d", e.Output.GetOffset(), len(o.bytes[stream]))
			}
			o.bytes[stream] = append(o.bytes[stream], e.Output.GetData()...)
		case *execwirev1.ProcessEvent_Exited:
			o.exit = e.Exited.GetExit()
		case *execwirev1.ProcessEvent_Closed:
			o.closed = e.Closed
		}
	}
}

func (o *output) stdout() string {
	return string(o.bytes[execwirev1.OutputStream_OUTPUT_STREAM_STDOUT])
}

func (o *output) stderr() string {
	return string(o.bytes[execwirev1.OutputStream_OUTPUT_STREAM_STDERR])
}

func (o *output) terminal() string {
	return string(o.bytes[execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL])
}

// watch reads the events of a process to the end.
func (f *fixture) watch(req *execwirev1.WatchProcessRequest) *output {
	f.t.Helper()
	stream, err := f.processes.WatchProcess(f.ctx, req)
	if err != nil {
		f.t.Fatal(err)
	}
	o := newOutput(f.t, req.GetAfterSeq())
	for {
		resp, err := stream.Recv()
		if err == io.EOF {
			return o
		}
		if err != nil {
			f.t.Fatalf("WatchProcess: %v", err)
		}
		o.add(resp.GetEvents()...)
	}
}

// expectFailure checks code and reason of an error.
func expectFailure(t *testing.T, err error, code codes.Code, reason execwirev1.ErrorReason) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("error is %v, want code %v", err, code)
	}
	if got, want := errorinfo.Of(err).GetReason(), errorinfo.Name(reason); got != want {
		t.Fatalf("reason is %q, want %s (%v)", got, want, err)
	}
}

// violatedField returns the first field violation of an error.
func violatedField(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok && len(bad.GetFieldViolations()) > 0 {
			return bad.GetFieldViolations()[0].GetField()
		}
	}
	return ""
}

func seconds(n float64) *durationpb.Duration {
	return durationpb.New(time.Duration(n * float64(time.Second)))
}
