package relay

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// restart kills the server and starts another one at the same address.
func restart(c *harness.Command, t testing.TB) *harness.Command {
	t.Helper()
	c.KillServer(t)
	c.Await(t)
	args := []string{"serve"}
	for _, d := range []harness.Transport{harness.UnixTransport, harness.TCPTransport} {
		args = append(args, "--listen", c.URLs[d])
	}
	again := harness.NewCommand(args...)
	again.Listen(t, 2)
	return again
}

// A client of a server that was killed and restarted reports that its process ended with the
// server, whatever the grace period.
func TestRestartedServer_IsReported(t *testing.T) {
	harness.Waits(t)
	server := harness.Serve(t)
	commands := map[harness.Transport]*harness.HeldCommand{}
	for _, d := range []harness.Transport{harness.UnixTransport, harness.TCPTransport, harness.WebsocketTransport} {
		flags := []string{"--id", "by-" + string(d)}
		if d != harness.WebsocketTransport {
			flags = append(flags, "--grace", "1h")
		}
		commands[d] = harness.HoldCommand(t, server, d, flags...)
	}
	described := make(chan struct{}, 2) // Follow and Wait have found the process
	c, err := client.Dial(harness.Context(t), server.URLs[harness.TCPTransport], client.WithDialOptions(grpc.WithUnaryInterceptor(
		func(ctx context.Context, method string, request, response any, conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
			err := call(ctx, method, request, response, conn, options...)
			if method == execwirev1.ProcessService_GetProcess_FullMethodName && err == nil {
				described <- struct{}{}
			}
			return err
		})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	started, failed := make(chan string, 1), make(chan error, 1)
	go func() {
		_, err := c.Run(harness.Context(t), client.RunOptions{
			Grace: new(time.Hour),
			Process: &execwirev1.StartProcessRequest{Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
				Direct: &execwirev1.DirectCommand{Argv: harness.Shell("exec sleep 1000"), WorkingDirectory: "/", Env: harness.Environment()}}}},
			OnStarted: func(p *execwirev1.Process) { started <- p.GetProcessId() },
		})
		failed <- err
	}()
	id := <-started
	session, err := c.AttachSession(harness.Context(t), client.SessionOptions{Grace: new(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}

	followed, waited := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := c.Follow(harness.Context(t), client.ProcessRef{ProcessID: id}, client.FollowOptions{})
		followed <- err
	}()
	go func() {
		_, err := c.Wait(harness.Context(t), &execwirev1.WaitProcessRequest{ProcessId: id,
			Condition: &execwirev1.WaitProcessRequest_Closed{Closed: &execwirev1.WaitForClosed{}}})
		waited <- err
	}()
	<-described
	<-described

	restart(server, t)
	for name, failed := range map[string]chan error{"Follow": followed, "Wait": waited} {
		if err := <-failed; !errors.Is(err, client.ErrRestarted) {
			t.Errorf("%s failed with %v", name, err)
		}
	}
	for d, h := range commands {
		if code, said := h.Await(t), h.Errors.String(); code != 125 || strings.Contains(said, "longer") ||
			!strings.Contains(said, "the server was restarted; the process by-"+string(d)+" ended with it") {
			t.Errorf("run through %s ended with %d and %q", d, code, said)
		}
	}
	var lost *client.LostError
	if err := <-failed; !errors.As(err, &lost) || !lost.Restarted || !errors.Is(err, client.ErrRestarted) || !errors.Is(err, client.ErrLost) ||
		lost.ProcessID != id {
		t.Errorf("Run failed with %v", err)
	}
	if _, err := session.Next(harness.Context(t)); !errors.Is(err, client.ErrRestarted) {
		t.Errorf("the session ended with %v", err)
	}
}

// A client of a killed and restarted executor reports that as soon as the hub has the new one.
func TestRestartedExecutor_BehindAHub_IsReported(t *testing.T) {
	harness.Waits(t)
	f := harness.NewFleet(t)
	held := harness.NewCommand(append(f.Through("--id", "held", "--grace", "1h", "--"), harness.Shell("echo here; exec sleep 1000")...)...)
	var stdout harness.LockedBuffer
	held.Stdout = &stdout
	held.Launch(t)
	harness.Eventually(t, "the process runs", func() bool { return stdout.String() == "here\n" })

	f.Executor.KillServer(t)
	f.Executor.Await(t)
	f.Executor = harness.NewCommand("serve", "--remote", f.URL(), "--executor-id", harness.ExecutorID)
	f.Executor.Launch(t)
	f.AwaitExecutor(t)
	if code, said := held.Await(t), held.Errors.String(); code != 125 || strings.Contains(said, "longer") ||
		!strings.Contains(said, "the server was restarted; the process held ended with it") {
		t.Errorf("run ended with %d and %q", code, said)
	}
}
