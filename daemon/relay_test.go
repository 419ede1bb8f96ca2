package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testcert"
	"github.com/execwire/execwire/relay"
	"github.com/execwire/execwire/relay/executor"
	"github.com/execwire/execwire/relay/harness"
	"github.com/execwire/execwire/relay/rendezvous"
)

// hub starts a hub that accepts every client, or rejects all if it is locked.
func hub(t *testing.T, locked bool) (url string) {
	t.Helper()
	member := auth.UnrestrictedMember(auth.Loopback)
	h, err := rendezvous.New(rendezvous.Config{
		Authenticate: func(*http.Request) (auth.Member, error) {
			if locked {
				return auth.Member{Principal: auth.Loopback}, nil
			}
			return member, nil
		},
		Recall: func(*http.Request, auth.Principal) (auth.Member, error) { return member, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return s.URL
}

// asExecutor configures a daemon as the executor "here" of a hub, without listeners.
func asExecutor(hub string) func(*config.Config) {
	return func(cfg *config.Config) {
		cfg.Listen, cfg.RemoteURL, cfg.ExecutorID, cfg.ExecutorLabels = nil, hub, "here", []string{"a=b"}
	}
}

// awaitExecutor waits until the hub lists the executor, and returns its entry.
func (o *opened) awaitExecutor(hub string) client.Executor {
	o.t.Helper()
	for {
		list, err := client.Executors(o.ctx, hub)
		if err != nil {
			o.t.Fatal(err)
		}
		if len(list) == 1 && list[0].Connected {
			return list[0]
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// through connects to the executor with gRPC.
func (o *opened) through(hub string) *client.Client {
	o.t.Helper()
	o.awaitExecutor(hub)
	url, err := client.RelayURL(hub, "here")
	if err != nil {
		o.t.Fatal(err)
	}
	c, err := client.Dial(o.ctx, url)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { _ = c.Close() })
	return c
}

// stream opens a stream for JSON-RPC.
func (o *opened) stream(hub string) *relay.Stream {
	o.t.Helper()
	o.awaitExecutor(hub)
	h, err := harness.Dial(o.ctx, harness.Options{URL: strings.Replace(hub, "http", "ws", 1) + "/executor/here?role=harness"})
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { _ = h.Close() })
	stream, err := h.Open(o.ctx)
	if err != nil {
		o.t.Fatal(err)
	}
	return stream
}

func (o *opened) send(s *relay.Stream, message string) {
	o.t.Helper()
	if err := s.Send(o.ctx, []byte(message)); err != nil {
		o.t.Fatal(err)
	}
}

// receive returns the next message that has a member.
func (o *opened) receive(s *relay.Stream, member string) map[string]any {
	o.t.Helper()
	for {
		text, err := s.Receive(o.ctx)
		if err != nil {
			o.t.Fatal(err)
		}
		var message map[string]any
		if err := json.Unmarshal(text, &message); err != nil {
			o.t.Fatalf("%q: %v", text, err)
		}
		if _, ok := message[member]; ok {
			return message
		}
	}
}

func TestRelay_GRPCAndJSONRPCClients(t *testing.T) {
	url := hub(t, false)
	o := open(t, asExecutor(url))
	if e := o.awaitExecutor(url); e.ID != "here" || e.Labels["a"] != "b" || e.Name == "" || e.Version != "devel" {
		t.Errorf("the hub knows %+v", e)
	}
	var out strings.Builder
	exit, err := o.through(url).Run(o.ctx, client.RunOptions{Process: command("sh", "-c", "echo hello; exit 3"), Stdout: &out})
	if err != nil || exit.Code != 3 || out.String() != "hello\n" {
		t.Errorf("run: %+v, %v, %q", exit, err, &out)
	}

	s := o.stream(url)
	o.send(s, `{"id":1,"method":"initialize","params":{"clientName":"test"}}`)
	if answer := o.receive(s, "id"); answer["error"] != nil {
		t.Fatalf("initialize: %v", answer)
	}
	o.send(s, `{"method":"initialized"}`)
	o.send(s, `{"id":2,"method":"process/start","params":{"processId":"p","argv":["sh","-c","printf hi"],"cwd":"/","env":{"PATH":"/bin:/usr/bin"},"tty":false,"arg0":null}}`)
	for m := o.receive(s, "method"); m["method"] != "process/closed"; m = o.receive(s, "method") {
		if m["method"] == "process/output" && m["params"].(map[string]any)["chunk"] != "aGk=" {
			t.Errorf("the output is %v", m)
		}
	}
	s.Reset(relay.ReasonClosed)
}

func command(argv ...string) *execwirev1.StartProcessRequest {
	return &execwirev1.StartProcessRequest{Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
		Direct: &execwirev1.DirectCommand{Argv: argv, WorkingDirectory: "/", Env: map[string]string{"PATH": "/bin:/usr/bin"}}}}}
}

// All clients of the relay are one principal, which the table can restrict.
func TestRelay_ClientsAreOnePrincipal(t *testing.T) {
	url := hub(t, false)
	table := testcert.WriteFile(t, t.TempDir()+"/principals.toml", []byte("[[principal]]\nname = \"relay\"\nallow = [\"environment\"]\n"))
	o := open(t, func(cfg *config.Config) {
		asExecutor(url)(cfg)
		cfg.Principals = table
	})
	c := o.through(url)
	if _, err := c.Describe(o.ctx); err != nil {
		t.Error(err)
	}
	_, err := c.Run(o.ctx, client.RunOptions{Process: command("true")})
	if client.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_CALL_NOT_ALLOWED || !strings.Contains(err.Error(), "relay may not") {
		t.Errorf("run: %v", err)
	}
}

// When the server stops, a connected client receives the exit of its process.
func TestRelay_Drain_ReportsExit(t *testing.T) {
	url := hub(t, false)
	o := open(t, asExecutor(url))
	s := o.stream(url)
	o.send(s, `{"id":1,"method":"initialize","params":{"clientName":"test"}}`)
	o.receive(s, "id")
	started, ended := make(chan struct{}), make(chan error, 1)
	c := o.through(url)
	go func() {
		exit, err := c.Run(o.ctx, client.RunOptions{Process: command("sleep", "1000"), OnStarted: func(*execwirev1.Process) { close(started) }})
		if err == nil && exit.Cause != execwirev1.ExitCause_EXIT_CAUSE_SERVER_SHUTDOWN {
			err = fmt.Errorf("the process ended with %+v", exit)
		}
		ended <- err
	}()
	<-started
	o.stop(errOver)
	o.stopNow(errOver)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	<-o.served
	var reset *relay.ResetError
	for {
		_, err := s.Receive(o.ctx)
		if errors.As(err, &reset) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if reset.Reason != relay.ReasonGoingAway || !reset.Remote {
		t.Errorf("a JSON-RPC client received %v", reset)
	}
}

// gRPC waits for the handshakes of connections before it stops; streams without a request must not block it.
func TestRelay_StreamsWithoutRequest_DoNotBlockStop(t *testing.T) {
	for name, begins := range map[string]string{
		"a part of the preface":                "PRI ",
		"the preface":                          "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"the preface and settings, no request": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			url := hub(t, false)
			o := open(t, asExecutor(url))
			s := o.stream(url)
			o.send(s, begins)
			if _, err := o.through(url).Describe(o.ctx); err != nil { // by then the earlier message has arrived too
				t.Fatal(err)
			}
			o.stop(errOver)
			o.stopNow(errOver)
			<-o.served
			if o.err != nil {
				t.Errorf("Serve = %v", o.err)
			}
		})
	}
}

// Permanent errors end the server with the reason.
func TestRelay_PermanentErrors_EndServe(t *testing.T) {
	locked := hub(t, true)
	serve := func(change func(*config.Config)) error {
		cfg := config.Default()
		change(&cfg)
		d, err := daemon.New(cfg, daemon.Options{})
		if err != nil {
			return err
		}
		return errors.Join(d.Serve(context.Background(), context.Background()), d.Close()) // Serve closes only what it served
	}
	var remote *daemon.RemoteError
	if err := serve(asExecutor(locked)); !errors.As(err, &remote) || !strings.Contains(err.Error(), "403") {
		t.Errorf("a rejected executor: %v", err)
	}
	if err := serve(func(cfg *config.Config) { asExecutor(locked)(cfg); cfg.RemoteCA = "/nonexistent" }); err == nil || !strings.Contains(err.Error(), "remote_tls_ca") {
		t.Errorf("a missing authority file: %v", err)
	}

	url := hub(t, false)
	first := make(chan error, 1)
	go func() { first <- serve(asExecutor(url)) }()
	o := &opened{t: t, ctx: t.Context()}
	o.awaitExecutor(url)
	open(t, asExecutor(url)).awaitExecutor(url)
	err := <-first
	if superseded := new(executor.SupersededError); !errors.As(err, &superseded) {
		t.Errorf("a replaced executor: %v", err)
	}
}
