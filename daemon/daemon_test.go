package daemon_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/daemon"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/listen"
)

func TestMain(m *testing.M) {
	daemon.Main()
	leakcheck.Main(m)
}

const testTimeout = 2 * time.Minute

// serving is a running daemon.
type serving struct {
	t    *testing.T
	ctx  context.Context
	urls []string
	stop context.CancelCauseFunc // starts the drain
	now  context.CancelCauseFunc // ends the drain
	done chan error
	left chan int // processes when the drain began
}

func serve(t *testing.T, urls ...string) *serving {
	t.Helper()
	return serveWith(t, func(*config.Config) {}, urls...)
}

// serveWith runs a daemon with a modified configuration.
func serveWith(t *testing.T, change func(*config.Config), urls ...string) *serving {
	t.Helper()
	cfg := config.Default()
	cfg.Listen = urls
	cfg.ShutdownGrace = config.Duration(time.Hour)
	change(&cfg)
	s := &serving{t: t, done: make(chan error, 1), left: make(chan int, 1)}
	listening := make(chan string, len(urls))
	d, err := daemon.New(cfg, daemon.Options{
		OnListen: func(url string) { listening <- url },
		OnDrain:  func(n int) { s.left <- n },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), testTimeout, errors.New("the test hangs"))
	s.ctx = ctx
	stopped, stop := context.WithCancelCause(ctx)
	now, cut := context.WithCancelCause(ctx)
	s.stop, s.now = stop, cut
	go func() { s.done <- d.Serve(stopped, now) }()
	for range urls {
		select {
		case url := <-listening:
			s.urls = append(s.urls, url)
		case err := <-s.done:
			t.Fatalf("Serve = %v", err)
		}
	}
	t.Cleanup(func() {
		cut(errors.New("the test is over"))
		stop(errors.New("the test is over"))
		<-s.done
		cancel()
	})
	return s
}

// dial connects to the n-th listener.
func (s *serving) dial(n int) *grpc.ClientConn {
	s.t.Helper()
	target := "passthrough:///" + strings.TrimPrefix(s.urls[n], "tcp://")
	if path, ok := strings.CutPrefix(s.urls[n], "unix://"); ok {
		target = "unix://" + path
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// wait returns what Serve returned. It leaves the value for Cleanup.
func (s *serving) wait() error {
	err := <-s.done
	s.done <- err
	return err
}

func (s *serving) startSleep(conn *grpc.ClientConn) {
	s.t.Helper()
	_, err := execwirev1.NewProcessServiceClient(conn).StartProcess(s.ctx, &execwirev1.StartProcessRequest{ProcessId: "p",
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{Direct: &execwirev1.DirectCommand{
			Argv: []string{"/bin/sleep", "1000"}, WorkingDirectory: "/"}}}})
	if err != nil {
		s.t.Fatal(err)
	}
}

func TestServe_EveryListener(t *testing.T) {
	s := serve(t, "unix://"+filepath.Join(t.TempDir(), "s"), "tcp://127.0.0.1:0", "tcp://[::1]:0")
	for i := range s.urls {
		resp, err := healthpb.NewHealthClient(s.dial(i)).Check(s.ctx, &healthpb.HealthCheckRequest{})
		if err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%s: %v, %v", s.urls[i], resp, err)
		}
	}
}

func TestStop_NoProcesses_IsImmediate(t *testing.T) {
	s := serve(t, "tcp://127.0.0.1:0")
	s.stop(errors.New("SIGTERM"))
	if err := s.wait(); err != nil {
		t.Errorf("Serve = %v", err)
	}
}

func TestHealth_Watch_EndsWithServer(t *testing.T) {
	s := serve(t, "tcp://127.0.0.1:0")
	health := healthpb.NewHealthClient(s.dial(0))
	expectHealth := func(watch healthpb.Health_WatchClient, want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if resp, err := watch.Recv(); err != nil || resp.GetStatus() != want {
			t.Errorf("a watch received %v, %v, want %v", resp, err, want)
		}
	}
	watch := func(service string) healthpb.Health_WatchClient {
		w, err := health.Watch(s.ctx, &healthpb.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	known, unknown := watch(""), watch("no.such.Service")
	expectHealth(known, healthpb.HealthCheckResponse_SERVING)
	expectHealth(unknown, healthpb.HealthCheckResponse_SERVICE_UNKNOWN)
	s.stop(errors.New("SIGTERM"))
	expectHealth(known, healthpb.HealthCheckResponse_NOT_SERVING)
	for _, w := range []healthpb.Health_WatchClient{known, unknown} {
		// The watches end before the connection does, so they receive the reason.
		if _, err := w.Recv(); status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "the server has stopped" {
			t.Errorf("a watch ended with %v", err)
		}
	}
	if err := s.wait(); err != nil {
		t.Errorf("Serve = %v", err)
	}
}

func TestDrain_ReportsAndWaitsAndCanBeCutShort(t *testing.T) {
	s := serve(t, "tcp://127.0.0.1:0")
	conn := s.dial(0)
	s.startSleep(conn)
	client := execwirev1.NewProcessServiceClient(conn)
	watch, err := client.WatchProcess(s.ctx, &execwirev1.WatchProcessRequest{ProcessId: "p"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.GetProcess(s.ctx, &execwirev1.GetProcessRequest{ProcessId: "p"}); err != nil {
		t.Fatal(err)
	}
	s.stop(errors.New("SIGTERM"))
	if n := <-s.left; n != 1 {
		t.Errorf("OnDrain received %d", n)
	}
	resp, err := healthpb.NewHealthClient(conn).Check(s.ctx, &healthpb.HealthCheckRequest{})
	if err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health while draining is %v, %v", resp, err)
	}
	_, err = client.StartProcess(s.ctx, &execwirev1.StartProcessRequest{ProcessId: "q",
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{Direct: &execwirev1.DirectCommand{
			Argv: []string{"/bin/true"}, WorkingDirectory: "/"}}}})
	if status.Code(err) != codes.Unavailable || errorinfo.Of(err).GetReason() != "DRAINING" {
		t.Errorf("a start while draining: %v", err)
	}
	s.now(errors.New("SIGTERM again"))
	var exit *execwirev1.ExitRecord
	for err = nil; err == nil; {
		var response *execwirev1.WatchProcessResponse
		response, err = watch.Recv()
		for _, e := range response.GetEvents() {
			if e.GetExited() != nil {
				exit = e.GetExited().GetExit()
			}
		}
	}
	if exit.GetCause() != execwirev1.ExitCause_EXIT_CAUSE_SERVER_SHUTDOWN {
		t.Errorf("a watch received %v before %v", exit, err)
	}
	if err := s.wait(); err != nil {
		t.Errorf("Serve = %v", err)
	}
}

func TestUnknownMethod_IsUnimplemented(t *testing.T) {
	s := serve(t, "tcp://127.0.0.1:0")
	err := s.dial(0).Invoke(s.ctx, "/execwire.v1.ProcessService/FromTheFuture", &execwirev1.GetProcessRequest{}, &execwirev1.GetProcessResponse{})
	if status.Code(err) != codes.Unimplemented || errorinfo.Of(err).GetReason() != "NOT_IMPLEMENTED" {
		t.Errorf("an unknown method returns %v", err)
	}
}

func TestServe_OneBadListener_OpensNone(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	path := filepath.Join(t.TempDir(), "s")
	for _, bad := range []string{"grpc://" + taken.Addr().String(), "grpc://0.0.0.0:0", "nonsense"} {
		cfg := config.Default()
		cfg.Listen = []string{"unix://" + path, bad}
		d, err := daemon.New(cfg, daemon.Options{OnListen: func(url string) { t.Errorf("%s was opened", url) }})
		if err != nil {
			t.Fatal(err)
		}
		err = d.Serve(t.Context(), t.Context())
		var typed *listen.Error
		if !errors.As(err, &typed) {
			t.Errorf("%s: Serve = %v", bad, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestNew_BadConfiguration_Fails(t *testing.T) {
	cfg := config.Default()
	cfg.MaxWait = 0
	_, err := daemon.New(cfg, daemon.Options{})
	var typed *config.Error
	if !errors.As(err, &typed) || typed.Setting != "max_wait" {
		t.Errorf("New = %v", err)
	}
}
