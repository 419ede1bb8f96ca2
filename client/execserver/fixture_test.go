package execserver

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/gateway"
	"github.com/execwire/execwire/gateway/wsserver"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/httpclient"
	"github.com/execwire/execwire/internal/inproc"
	"github.com/execwire/execwire/internal/jsonrpc"
	coreprocess "github.com/execwire/execwire/internal/process"
	coresession "github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/server"
)

// patience is how long a test waits for what must happen.
const patience = 2 * time.Minute

// gatewayServer is a core of ours behind a gateway on loopback.
type gatewayServer struct {
	t       testing.TB
	address string
	channel *inproc.Channel // to the core itself
	// intercept is what becomes of requests of the core that have no stream; nil is
	// nothing else.
	intercept atomic.Pointer[grpc.UnaryServerInterceptor]
}

func newGateway(t testing.TB) *gatewayServer {
	t.Helper()
	supervisor := coreprocess.NewSupervisor(coreprocess.Config{StdinQueueBytes: 1 << 20, MaxWriteBytes: 1 << 20})
	sessions := coresession.NewRegistry(supervisor, coresession.Config{
		DefaultGrace: 30 * time.Second, MaxGrace: time.Hour, ClosedRetention: 30 * time.Second})
	srv := server.New(server.Config{
		Sessions: sessions,
		HTTP:     httpclient.New(httpclient.Options{HeadBytes: 16 << 10, PerOwner: 100}),
		Limits: server.Limits{
			ServerLimits: &execwirev1.ServerLimits{
				RetainedOutputBytes: 1 << 20, RetainedEvents: 50_000, SnapshotBytes: 64 << 10, ReadersPerProcess: 64,
				StdinWriteBytes: 1 << 20, StdinQueueBytes: 1 << 20, MessageBytes: 4 << 20, MaxWait: durationpb.New(time.Minute),
				WatchesPerPrincipal: 1000, AwaitedPathsPerPrincipal: 10_000, WatchedDirectoriesPerWatch: 10_000, WatchPendingBytes: 1 << 20,
				ReadFileBytes: 1 << 20, FileHandlesPerSession: 100, FileHandleIdleTime: durationpb.New(time.Minute), UploadsPerPrincipal: 100, UploadRetention: durationpb.New(time.Minute),
			},
			AbandonedUploads: 100,
			FileWorkers:      8, FileWorkersTotal: 64, FileWorkerIdle: time.Minute,
		},
		Authenticate: func(context.Context) (auth.Caller, error) { return auth.Unrestricted(auth.InProcess), nil },
		Version:      "test",
		KillMethod:   supervisor.KillMethod(),
		Environ:      []string{"PATH=/usr/bin:/bin", "HOME=/home/test"},
	})
	made := &gatewayServer{t: t}
	tap := func(ctx context.Context, request any, info *grpc.UnaryServerInfo, serve grpc.UnaryHandler) (any, error) {
		if intercept := made.intercept.Load(); intercept != nil {
			return (*intercept)(ctx, request, info, serve)
		}
		return serve(ctx, request)
	}
	channel := inproc.New(inproc.WithUnaryInterceptors(append([]grpc.UnaryServerInterceptor{tap}, srv.UnaryInterceptors()...)...), inproc.WithStreamInterceptors(srv.StreamInterceptors()...))
	srv.Register(channel)
	served, err := gateway.New(gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	handler := wsserver.NewHandler(wsserver.HTTPConfig{
		Authenticate: func(*http.Request) (auth.Caller, *wsserver.Refusal) { return auth.Unrestricted(auth.InProcess), nil },
		Serve: func(ctx context.Context, _ auth.Caller, conn *wsconn.Conn) {
			_ = served.Serve(ctx, "p", channel, conn) // how a client leaves is the test's matter
		},
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := wsserver.NewHTTPServer(handler, time.Minute, slog.New(slog.DiscardHandler))
	var serving sync.WaitGroup
	serving.Go(func() { _ = web.Serve(listener) })
	t.Cleanup(func() {
		_ = web.Close()
		serving.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := handler.Shutdown(ctx); err != nil {
			t.Errorf("shutting the gateway down: %v", err)
		}
		if err := sessions.Close(ctx); err != nil {
			t.Errorf("closing the sessions: %v", err)
		}
		channel.Close()
		srv.Close()
	})
	made.address, made.channel = listener.Addr().String(), channel
	return made
}

// opener opens websockets to an address.
func opener(address string) func(context.Context) (jsonrpc.Transport, error) {
	return func(ctx context.Context) (jsonrpc.Transport, error) {
		conn, err := wsconn.Dial(ctx, "ws://"+address+"/", wsconn.DialOptions{Options: wsconn.Options{CloseTimeout: time.Second}})
		if err != nil {
			return nil, err
		}
		return conn, nil
	}
}

// dial connects to an address and closes the connection with the test.
func dial(t testing.TB, address string, change ...func(*Options)) *Conn {
	t.Helper()
	options := Options{Open: opener(address)}
	for _, f := range change {
		f(&options)
	}
	conn, err := Dial(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Errorf("closing the connection: %v", err)
		}
	})
	return conn
}

// start starts a process whose owner is lost with the test.
func start(t testing.TB, conn *Conn, request *execwirev1.StartProcessRequest) (*execwirev1.RunStarted, error) {
	t.Helper()
	stream, err := execwirev1.NewProcessServiceClient(conn).RunProcess(t.Context())
	if err != nil {
		return nil, err
	}
	_ = stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: &execwirev1.RunStart{Process: request}}}) // Recv says why it failed
	first, err := stream.Recv()
	return first.GetStarted(), err
}

// script is a shell command.
func script(id, text string) *execwirev1.StartProcessRequest {
	return program(id, "sh", "-c", text)
}

func program(id string, argv ...string) *execwirev1.StartProcessRequest {
	return &execwirev1.StartProcessRequest{ProcessId: id, Command: &execwirev1.ProcessCommand{
		Command: &execwirev1.ProcessCommand_Direct{Direct: &execwirev1.DirectCommand{
			Argv: argv, WorkingDirectory: "/", Env: map[string]string{"PATH": "/usr/bin:/bin"},
		}}}}
}
