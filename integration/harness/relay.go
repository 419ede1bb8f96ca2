package harness

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/internal/testport"
)

// NewForward runs a forward with these flags, and one listener.
func NewForward(t testing.TB, flags ...string) *Command {
	t.Helper()
	c := NewCommand(append([]string{"forward", "--listen", "unix://" + filepath.Join(ShortDir(t), "f")}, flags...)...)
	c.Listen(t, 1)
	return c
}

// Fleet is a hub and an executor in processes of their own, and the proxies in front of
// the hub.
type Fleet struct {
	Hub, Executor *Command
	// near is the proxy of clients, far that of the executor.
	Near, Far *Proxy
}

// ExecutorID is the ID of the executor of a fleet.
const ExecutorID = "build-1"

// NewFleet starts a hub and an executor with these settings, in the form
// NAME=value. Those of the hub begin with EXECWIRE_HUB_.
func NewFleet(t testing.TB, settings ...string) *Fleet {
	t.Helper()
	f := &Fleet{Hub: NewHub(t, settings)}
	address := AddressOf(f.Hub.URLs[HubTransport])
	f.Near, f.Far = NewProxy(t, "tcp", address), NewProxy(t, "tcp", address)
	f.Executor = NewCommand("serve", "--remote", "http://"+f.Far.Listener.Addr().String(), "--executor-id", ExecutorID, "--executor-labels", "arch=test")
	f.Executor.Env = append(f.Executor.Env, settings...)
	f.Executor.Launch(t)
	f.AwaitExecutor(t)
	return f
}

// HubTransport is the key of a hub's URL.
const HubTransport Transport = "hub"

// NewHub starts a hub.
func NewHub(t testing.TB, settings []string, flags ...string) *Command {
	t.Helper()
	binary, err := HubCommand()
	if err != nil {
		t.Fatal(err)
	}
	if len(flags) == 0 {
		flags = []string{"--listen", fmt.Sprintf("http://127.0.0.1:%d", testport.Reserve(t))}
	}
	c := Prepare(exec.Command(binary, flags...))
	c.Env = append(c.Env, settings...)
	c.Listen(t, 1)
	return c
}

// URL returns the URL of the hub for clients.
func (f *Fleet) URL() string { return "http://" + f.Near.Listener.Addr().String() }

// Server returns the URL of the executor for clients.
func (f *Fleet) Server(t testing.TB) string {
	t.Helper()
	url, err := client.RelayURL(f.URL(), ExecutorID)
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// Through returns the start of a command line that runs a process on the executor.
func (f *Fleet) Through(flags ...string) []string {
	return append([]string{"run", "--hub", f.URL(), "--executor", ExecutorID}, flags...)
}

// AwaitExecutor waits until the hub has the executor.
func (f *Fleet) AwaitExecutor(t testing.TB) {
	t.Helper()
	f.AwaitExecutorOf(t, ExecutorID)
}

// AwaitExecutorOf waits until the hub has an executor of that id.
func (f *Fleet) AwaitExecutorOf(t testing.TB, id string) {
	t.Helper()
	ctx := Context(t)
	Eventually(t, "the executor is connected", func() bool {
		list, err := client.Executors(ctx, f.URL())
		return err == nil && slices.ContainsFunc(list, func(e client.Executor) bool { return e.ID == id && e.Connected })
	})
}

// Cutting cuts the connections of both proxies in turn, periodically, until the
// returned function is called, which returns their number.
func (f *Fleet) Cutting(interval time.Duration) (stop func() int) {
	return cutting(interval/2, f.Near, f.Far)
}

// Stopped terminates the command and returns its exit code.
func (c *Command) Stopped(t testing.TB) int {
	t.Helper()
	c.Send(t, unix.SIGTERM)
	return c.Await(t)
}
