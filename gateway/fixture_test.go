package gateway

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/httpclient"
	"github.com/execwire/execwire/internal/inproc"
	serverprocess "github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/sandbox"
	serversession "github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/server"
)

// patience limits how long a test waits.
const patience = 2 * time.Minute

// testServer is a server in this process.
type testServer struct {
	t       testing.TB
	channel grpc.ClientConnInterface
	patient bool // see serverSettings
}

// serverSettings are the settings of a server that tests change.
type serverSettings struct {
	limits   server.Limits
	sessions serversession.Config
	wire     bool // the gateway uses a gRPC connection
	patient  bool // event gates have no practical limit

	noDirect, noPrepared bool // these forms of commands are disabled
	http                 *httpclient.Client
	sandboxes            *sandbox.Sandboxes
}

func newTestServer(t testing.TB, change ...func(*serverSettings)) *testServer {
	t.Helper()
	set := serverSettings{
		limits: server.Limits{
			ServerLimits: &execwirev1.ServerLimits{
				RetainedOutputBytes: 1 << 20, RetainedEvents: 50_000, SnapshotBytes: 64 << 10, ReadersPerProcess: 64,
				StdinWriteBytes: 1 << 20, StdinQueueBytes: 1 << 20, MessageBytes: 4 << 20, MaxWait: durationpb.New(time.Minute),
				WatchesPerPrincipal: 1000, AwaitedPathsPerPrincipal: 10_000, WatchedDirectoriesPerWatch: 10_000, WatchPendingBytes: 1 << 20,
			},
			FileWorkers: 8, FileWorkersTotal: 64, FileWorkerIdle: time.Minute,
		},
		http:     httpclient.New(httpclient.Options{HeadBytes: 16 << 10, PerOwner: 100}),
		sessions: serversession.Config{DefaultGrace: 30 * time.Second, MaxGrace: time.Hour, ClosedRetention: 30 * time.Second},
	}
	for _, f := range change {
		f(&set)
	}
	supervisor := serverprocess.NewSupervisor(serverprocess.Config{StdinQueueBytes: int(set.limits.StdinQueueBytes), MaxWriteBytes: int(set.limits.StdinWriteBytes)})
	set.limits.NoDirect, set.limits.NoPrepared = set.noDirect, set.noPrepared
	sessions := serversession.NewRegistry(supervisor, set.sessions)
	srv := server.New(server.Config{
		Sessions:     sessions,
		HTTP:         set.http,
		Sandboxes:    set.sandboxes,
		Limits:       set.limits,
		Authenticate: func(context.Context) (auth.Caller, error) { return auth.Unrestricted(auth.InProcess), nil },
		Version:      "test",
		KillMethod:   supervisor.KillMethod(),
		Environ:      []string{"PATH=/usr/bin:/bin", "HOME=/home/test", "API_TOKEN=hidden"},
	})
	channel := inproc.New(inproc.WithUnaryInterceptors(srv.UnaryInterceptors()...), inproc.WithStreamInterceptors(srv.StreamInterceptors()...))
	srv.Register(channel)
	c := &testServer{t: t, channel: channel, patient: set.patient}
	hangUp := func() {}
	if set.wire {
		c.channel, hangUp = overWire(t, srv)
	}
	t.Cleanup(func() {
		hangUp()
		if err := sessions.Close(context.Background()); err != nil {
			t.Errorf("closing the sessions: %v", err)
		}
		channel.Close()
		srv.Close()
	})
	return c
}

// patientHolds makes each response precede its effects, however slow the machine
// is.
func patientHolds(s *serverSettings) { s.patient = true }

// overWire serves gRPC on loopback.
func overWire(t testing.TB, srv *server.Server) (conn *grpc.ClientConn, hangUp func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := grpc.NewServer(grpc.WaitForHandlers(true), grpc.ChainUnaryInterceptor(srv.UnaryInterceptors()...), grpc.ChainStreamInterceptor(srv.StreamInterceptors()...))
	srv.Register(over)
	conn, err = grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = over.Serve(listener) })
	return conn, sync.OnceFunc(func() {
		_ = conn.Close()
		over.Stop()
		serving.Wait()
	})
}

// connect serves a client that has sent nothing yet.
func (c *testServer) connect(change ...func(*pipe, *Config)) *client {
	c.t.Helper()
	p, config := newPipe(), Config{}
	for _, f := range change {
		f(p, &config)
	}
	gateway, err := New(config)
	if err != nil {
		c.t.Fatal(err)
	}
	if c.patient {
		gateway.gateLimits = gateLimits{patience, patience}
	}
	ctx, cancel := context.WithCancelCause(c.t.Context())
	cl := &client{t: c.t, pipe: p, ctx: ctx, served: make(chan error, 1), gate: make(chan struct{}), quota: -1}
	cl.changed.L = &cl.mu
	close(cl.gate)
	var running sync.WaitGroup
	running.Go(func() { cl.served <- gateway.Serve(ctx, "p", c.channel, p.transport()) })
	cl.reading.Go(cl.read)
	c.t.Cleanup(func() {
		cl.resumeReading()
		cl.cut()
		cancel(nil)
		running.Wait()
		cl.reading.Wait()
	})
	return cl
}

// serveHere is connect for tests that inspect the connection.
func (c *testServer) serveHere() (*receiver, *client) {
	c.t.Helper()
	gateway, err := New(Config{})
	if err != nil {
		c.t.Fatal(err)
	}
	p := newPipe()
	served := newReceiver(gateway, c.t.Context(), "p", c.channel, p)
	cl := &client{t: c.t, pipe: p, gate: make(chan struct{}), quota: -1}
	cl.changed.L = &cl.mu
	close(cl.gate)
	var running sync.WaitGroup
	running.Go(func() { _ = served.serve() })
	cl.reading.Go(cl.read)
	c.t.Cleanup(func() {
		cl.cut()
		running.Wait()
		cl.reading.Wait()
	})
	return served, cl
}

// attach serves an initialized client, which resumes a session unless
// resume is empty. It returns the session.
func (c *testServer) attach(resume string, change ...func(*pipe, *Config)) (*client, string) {
	c.t.Helper()
	cl := c.connect(change...)
	return cl, cl.initialize(resume)
}
