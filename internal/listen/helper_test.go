package listen_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/listen"
)

// helperEnv makes the test binary a client that calls the target it names, prints
// the result and exits.
const helperEnv = "LISTEN_TEST_CALL"

func TestMain(m *testing.M) {
	if target := os.Getenv(helperEnv); target != "" {
		fmt.Println(call(context.Background(), target))
		return
	}
	leakcheck.Main(m)
}

// hangGuard bounds operations that could hang.
const hangGuard = 30 * time.Second

// call makes one call in plain text and returns the header "who" of the test server, or the
// error.
func call(ctx context.Context, target string) string {
	ctx, cancel := context.WithTimeout(ctx, hangGuard)
	defer cancel()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err.Error()
	}
	defer func() { _ = conn.Close() }()
	stream, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return err.Error()
	}
	header, _ := stream.Header()
	if who := header.Get("who"); len(who) == 1 {
		return who[0]
	}
	_, err = stream.Recv()
	return status.Convert(err).Message()
}

const nobody = 65534

// callAs runs call in a process of another user, with a copy of the binary that
// the user can reach.
func callAs(t *testing.T, uid uint32, target string) string {
	t.Helper()
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = self.Close() }()
	binary := filepath.Join(publicDir(t), "helper")
	out, err := os.OpenFile(binary, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, self); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Dir = "/"
	cmd.Env = []string{helperEnv + "=" + target, "GORACE=atexit_sleep_ms=0"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the helper failed: %v: %s", err, output)
	}
	return strings.TrimSpace(string(output))
}

// publicDir returns a directory that every user can enter, unlike t.TempDir.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "listen-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// dispatched is a listener that dispatches connections of every protocol to one queue.
type dispatched struct {
	listen.Listener
	*listen.Queue
	ended chan struct{}
}

func dispatch(l listen.Listener) *dispatched {
	d := &dispatched{Listener: l, Queue: listen.NewQueue(), ended: make(chan struct{})}
	go func() {
		defer close(d.ended)
		l.Dispatch(d.Queue, d.Queue)
	}()
	return d
}

// Addr returns the address of the listener.
func (d *dispatched) Addr() net.Addr { return d.Listener.Addr() }

// Close closes the listener, and waits until everything is dispatched.
func (d *dispatched) Close() error {
	err := d.Listener.Close()
	_ = d.Queue.Close()
	<-d.ended
	return err
}

// dialFor connects to a listener, and sends what lets it dispatch the connection.
func dialFor(t *testing.T, l *dispatched) net.Conn {
	t.Helper()
	client, err := net.Dial(l.Addr().Network(), l.Addr().String())
	if err != nil {
		t.Fatalf("failed to connect to %v: %v", l.URL(), err)
	}
	if l.URL().Scheme == listen.SchemeUnix {
		if _, err := io.WriteString(client, "PRI"); err != nil {
			t.Fatal(err)
		}
	}
	return client
}

// acceptFrom accepts a connection of dialFor.
func acceptFrom(t *testing.T, l *dispatched) net.Conn {
	t.Helper()
	server, err := l.Accept()
	if err != nil {
		t.Fatalf("failed to accept: %v", err)
	}
	if l.URL().Scheme == listen.SchemeUnix {
		if _, err := io.ReadFull(server, make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
	}
	return server
}

// mustListen opens a listener and closes it with the test.
func mustListen(t *testing.T, raw string) *dispatched {
	t.Helper()
	l, err := tryListen(t, raw)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func mustParse(t *testing.T, raw string) listen.URL {
	t.Helper()
	u, err := listen.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func tryListen(t *testing.T, raw string) (*dispatched, error) {
	t.Helper()
	u := mustParse(t, raw)
	ctx, cancel := context.WithTimeout(t.Context(), hangGuard)
	defer cancel()
	l, err := listen.Listen(ctx, u, listen.Options{})
	if err != nil {
		return nil, err
	}
	return dispatch(l), nil
}

// roundTrip connects to l and exchanges data.
func roundTrip(t *testing.T, l *dispatched) {
	t.Helper()
	client := dialFor(t, l)
	defer func() { _ = client.Close() }()
	server := acceptFrom(t, l)
	if _, err := server.Write([]byte("hello")); err != nil {
		t.Error(err)
	}
	_ = server.Close()
	if got, err := io.ReadAll(client); string(got) != "hello" || err != nil {
		t.Errorf("the client read %q, %v, want hello", got, err)
	}
}
