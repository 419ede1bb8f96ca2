package integration

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// restart kills the server and starts another one where it listened.
func (c *command) restart(t testing.TB) *command {
	t.Helper()
	c.killServer(t)
	c.await(t)
	args := []string{"serve"}
	for _, d := range []door{unixDoor, tcpDoor, websocketDoor} {
		args = append(args, "--listen", c.urls[d])
	}
	again := newCommand(args...)
	again.listen(t, 3)
	return again
}

// A client of a server that was killed and started again reports that, whatever the
// grace: the process ended with its server.
func TestRestartedServerIsReported(t *testing.T) {
	waits(t)
	server := serve(t)
	commands := map[door]*held{}
	for _, d := range []door{unixDoor, tcpDoor, websocketDoor} {
		flags := []string{"--id", "by-" + string(d)}
		if d != websocketDoor {
			flags = append(flags, "--grace", "1h")
		}
		commands[d] = hold(t, server, d, flags...)
	}
	described := make(chan struct{}, 2) // Follow and Wait know whom they wait for
	c, err := client.Dial(testContext(t), server.urls[tcpDoor], client.WithDialOptions(grpc.WithUnaryInterceptor(
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
		_, err := c.Run(testContext(t), client.RunOptions{
			Grace: new(time.Hour),
			Process: &execwirev1.StartProcessRequest{Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
				Direct: &execwirev1.DirectCommand{Argv: shell("exec sleep 1000"), WorkingDirectory: "/", Env: environment()}}}},
			OnStarted: func(p *execwirev1.Process) { started <- p.GetProcessId() },
		})
		failed <- err
	}()
	id := <-started
	session, err := c.AttachSession(testContext(t), client.SessionOptions{Grace: new(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}

	followed, waited := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := c.Follow(testContext(t), client.ProcessRef{ProcessID: id}, client.FollowOptions{})
		followed <- err
	}()
	go func() {
		_, err := c.Wait(testContext(t), &execwirev1.WaitProcessRequest{ProcessId: id,
			Condition: &execwirev1.WaitProcessRequest_Closed{Closed: &execwirev1.WaitForClosed{}}})
		waited <- err
	}()
	<-described
	<-described

	server.restart(t)
	for name, failed := range map[string]chan error{"Follow": followed, "Wait": waited} {
		if err := <-failed; !errors.Is(err, client.ErrRestarted) {
			t.Errorf("%s failed with %v", name, err)
		}
	}
	for d, h := range commands {
		if code, said := h.await(t), h.errors.String(); code != 125 || strings.Contains(said, "longer") ||
			!strings.Contains(said, "the server was restarted; the process by-"+string(d)+" ended with it") {
			t.Errorf("run through %s ended with %d and %q", d, code, said)
		}
	}
	var lost *client.LostError
	if err := <-failed; !errors.As(err, &lost) || !lost.Restarted || !errors.Is(err, client.ErrRestarted) || !errors.Is(err, client.ErrLost) ||
		lost.ProcessID != id {
		t.Errorf("Run failed with %v", err)
	}
	if _, err := session.Next(testContext(t)); !errors.Is(err, client.ErrRestarted) {
		t.Errorf("the session ended with %v", err)
	}
}

// A client of an executor behind a hub, which was killed and started again, reports that
// as soon as the hub has the new one.
func TestRestartedExecutor_BehindAHub_IsReported(t *testing.T) {
	waits(t)
	f := newFleet(t)
	held := newCommand(append(f.through("--id", "held", "--grace", "1h", "--"), shell("echo here; exec sleep 1000")...)...)
	var stdout lockedBuffer
	held.Stdout = &stdout
	held.launch(t)
	eventually(t, "the process runs", func() bool { return stdout.String() == "here\n" })

	f.executor.killServer(t)
	f.executor.await(t)
	f.executor = newCommand("serve", "--remote", f.url(), "--executor-id", executorID)
	f.executor.launch(t)
	f.awaitExecutor(t)
	if code, said := held.await(t), held.errors.String(); code != 125 || strings.Contains(said, "longer") ||
		!strings.Contains(said, "the server was restarted; the process held ended with it") {
		t.Errorf("run ended with %d and %q", code, said)
	}
}
