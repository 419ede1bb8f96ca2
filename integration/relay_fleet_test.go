package integration

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/client"
)

// fleet is a hub and an executor in processes of their own, and the wires that
// lead to the hub.
type fleet struct {
	hub, executor *command
	// near is the wire of clients, far that of the executor.
	near, far *proxy
}

// executorID is what the executor of a fleet is found by.
const executorID = "build-1"

// newFleet starts a hub and an executor with these settings, in the form
// NAME=value. Those of the hub begin with EXECWIRE_HUB_.
func newFleet(t testing.TB, settings ...string) *fleet {
	t.Helper()
	f := &fleet{hub: newHub(t, settings)}
	address := addressIn(f.hub.urls[hubDoor])
	f.near, f.far = newProxy(t, "tcp", address), newProxy(t, "tcp", address)
	f.executor = newCommand("serve", "--remote", "http://"+f.far.listener.Addr().String(), "--executor-id", executorID, "--label", "arch=test")
	f.executor.Env = append(f.executor.Env, settings...)
	f.executor.launch(t)
	f.awaitExecutor(t)
	return f
}

// hubDoor is where a hub listens.
const hubDoor door = "hub"

// newHub starts a hub.
func newHub(t testing.TB, settings []string, flags ...string) *command {
	t.Helper()
	binary, err := hubCommand()
	if err != nil {
		t.Fatal(err)
	}
	if len(flags) == 0 {
		flags = []string{"--listen", "http://127.0.0.1:0"}
	}
	c := prepare(exec.Command(binary, flags...))
	c.Env = append(c.Env, settings...)
	c.listen(t, 1)
	return c
}

// url is the hub as clients know it.
func (f *fleet) url() string { return "http://" + f.near.listener.Addr().String() }

// server is the executor as clients know it.
func (f *fleet) server(t testing.TB) string {
	t.Helper()
	url, err := client.RelayURL(f.url(), executorID)
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// through is the beginning of a command line that runs something on the executor.
func (f *fleet) through(flags ...string) []string {
	return append([]string{"run", "--hub", f.url(), "--executor", executorID}, flags...)
}

func (f *fleet) awaitExecutor(t testing.TB) {
	t.Helper()
	f.awaitExecutorOf(t, executorID)
}

// awaitExecutorOf waits until the hub has an executor of that id.
func (f *fleet) awaitExecutorOf(t testing.TB, id string) {
	t.Helper()
	ctx := testContext(t)
	eventually(t, "the executor is connected", func() bool {
		list, err := client.Executors(ctx, f.url())
		return err == nil && slices.ContainsFunc(list, func(e client.Executor) bool { return e.ID == id && e.Connected })
	})
}

// cutting cuts both wires, one after the other, every so often, until the returned
// function is called, which returns how many connections that were.
func (f *fleet) cutting(interval time.Duration) (stop func() int) {
	return cutting(interval/2, f.near, f.far)
}

// What the document about the relay tells to type does what it says.
func TestTheFleetOfTheDocument(t *testing.T) {
	f := newFleet(t)
	f.executor.send(t, unix.SIGTERM)
	f.executor.await(t)
	f.executor = newCommand("serve", "--remote", f.url(), "--executor-id", executorID, "--label", "arch=amd64")
	f.executor.launch(t)
	f.awaitExecutor(t)
	runCommands(t, "docs/remote.md", 3, strings.NewReplacer("bin/execwire", execwire, "http://127.0.0.1:7430", f.url()), nil)
}

// The processes of clients do not get what was shown to the hub.
func TestSecretsForTheHubStayWithTheServer(t *testing.T) {
	f := newFleet(t, "CODEX_EXEC_SERVER_REMOTE_BEARER_TOKEN=secret-for-the-hub", "CODEX_ACCESS_TOKEN=secret-too", "PLAIN=seen")
	got := run(t, nil, append(f.through("--env-inherit", "all", "--"), "env")...)
	if got.code != 0 || !strings.Contains(got.stdout, "PLAIN=seen") || strings.Contains(got.stdout, "secret-") {
		t.Errorf("a process sees %+v", got)
	}
	if said := f.executor.errors.String(); strings.Contains(said, "secret-") {
		t.Errorf("the log says %s", said)
	}
}

// TestAFleetInFiveMinutes: the shortest way from nothing to a command on another
// machine.
func TestAFleetInFiveMinutes(t *testing.T) {
	f := newFleet(t)
	got := run(t, nil, "executors", "--hub", f.url())
	if fields := strings.Split(got.stdout, "\t"); got.code != 0 || len(fields) != 11 || fields[5] != "LABELS\n"+executorID || fields[6] != "connected" || fields[10] != "arch=test\n" {
		t.Errorf("executors: %+v", got)
	}
	if got := run(t, strings.NewReader("hello"), append(f.through("-i", "--"), shell("tr a-z A-Z; echo apart >&2; exit 6")...)...); got != (result{code: 6, stdout: "HELLO", stderr: "apart\n"}) {
		t.Errorf("run: %+v", got)
	}
	if got := run(t, nil, "run", "--hub", f.url(), "--executor", "nobody", "--", "true"); got.code != 125 || !strings.Contains(got.stderr, "execwire executors") {
		t.Errorf("an executor that is not there: %+v", got)
	}
	if got := run(t, nil, "run", "--server", f.server(t), "--", "true"); got != (result{}) {
		t.Errorf("run --server: %+v", got)
	}
	if code := f.executor.stopped(t); code != 0 {
		t.Errorf("the executor ended with %d", code)
	}
	if code := f.hub.stopped(t); code != 0 {
		t.Errorf("the hub ended with %d", code)
	}
}

// stopped is the code with which a command ends that is asked to.
func (c *command) stopped(t testing.TB) int {
	t.Helper()
	c.send(t, unix.SIGTERM)
	return c.await(t)
}
