package relay

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

// diskHub is a hub that keeps its presence on a small disk.
type diskHub struct {
	*harness.Command
	t    *testing.T
	url  string
	fill string // a file there, as this process sees it
}

func newDiskHub(t *testing.T, settings ...string) *diskHub {
	t.Helper()
	binary, err := harness.HubCommand()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	argv := harness.OnSmallDisk(dir, binary, "--listen", "http://127.0.0.1:0", "--presence-directory", dir+"/presence")
	h := &diskHub{Command: harness.Prepare(exec.Command(argv[0], argv[1:]...)), t: t}
	h.Env = append(h.Env, settings...)
	h.Listen(t, 1)
	h.url = "http://" + harness.AddressOf(h.URLs[harness.HubTransport])
	h.fill = h.PathOf(filepath.Join(dir, "fill"))
	return h
}

// ask returns the status of a response, whether it has a retry delay, and its body.
func (h *diskHub) ask(method, path string) (status int, retry bool, body string) {
	h.t.Helper()
	request, err := http.NewRequestWithContext(harness.Context(h.t), method, h.url+path, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		h.t.Fatalf("%s %s is not answered: %v", method, path, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return response.StatusCode, response.Header.Get("Retry-After") != "", string(text)
}

func (h *diskHub) register(id string) (status int, retry bool, body string) {
	return h.ask(http.MethodPost, "/cloud/executor/"+id+"/register")
}

// fillDisk fills the file system.
func (h *diskHub) fillDisk() {
	h.t.Helper()
	harness.FillDisk(h.t, h.fill)
}

// expectUnavailable waits until the hub responds that it cannot store anything, and checks
// that every registration until then gets a response.
func (h *diskHub) expectUnavailable() {
	h.t.Helper()
	n := 0
	harness.Eventually(h.t, "registrations are refused", func() bool {
		n++
		status, retry, body := h.register(fmt.Sprint("full-", n))
		if status == http.StatusOK {
			return false
		}
		if status != http.StatusServiceUnavailable || !retry || !strings.Contains(body, "presence_unavailable") {
			h.t.Fatalf("a registration is answered %d, %v, %s", status, retry, body)
		}
		return true
	})
	harness.Eventually(h.t, "the hub is not ready", func() bool {
		status, retry, _ := h.ask(http.MethodGet, "/readyz")
		return status == http.StatusServiceUnavailable && retry
	})
}

// A hub with a full disk reports that, rejects what it cannot store, and recovers when there
// is space.
func TestHub_WithAFullDisk_RefusesAndRecovers(t *testing.T) {
	harness.Slow(t)
	harness.Waits(t) // a server that cannot write answers nothing for three seconds
	h := newDiskHub(t)
	for round := range 2 {
		if status, _, body := h.register(fmt.Sprint("before-", round)); status != http.StatusOK {
			t.Fatalf("a registration is answered %d, %s", status, body)
		}
		h.fillDisk()
		h.expectUnavailable()
		if status, _, body := h.ask(http.MethodGet, "/v1/executors"); status != http.StatusOK || !strings.Contains(body, fmt.Sprint("before-", round)) {
			t.Errorf("the list is answered %d, %s", status, body)
		}
		if err := os.Remove(h.fill); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "the hub is ready", func() bool {
			status, _, _ := h.ask(http.MethodGet, "/readyz")
			return status == http.StatusOK
		})
		if status, _, body := h.register(fmt.Sprint("after-", round)); status != http.StatusOK {
			t.Errorf("after round %d a registration is answered %d, %s", round, status, body)
		}
	}
	for _, id := range []string{"before-0", "after-0", "before-1", "after-1"} {
		if status, _, body := h.register(id); status != http.StatusOK || !strings.Contains(body, `"epoch":2`) {
			t.Errorf("%s is registered again with %d, %s: its record is lost", id, status, body)
		}
	}
	if code := h.Stopped(t); code != 0 {
		t.Errorf("it ends with %d", code)
	}
}

// A full disk does not prevent a hub from ending.
func TestHub_WithAFullDisk_EndsWhenTold(t *testing.T) {
	harness.Slow(t)
	harness.Waits(t)
	h := newDiskHub(t)
	h.register("one")
	h.fillDisk()
	h.expectUnavailable()
	if code := h.Stopped(t); code != 0 {
		t.Errorf("it ends with %d", code)
	}
}

// Connected executors stay reachable while the disk is full, for existing and new clients.
func TestHub_WithAFullDisk_KeepsExecutorsReachable(t *testing.T) {
	harness.Slow(t)
	harness.Waits(t)
	h := newDiskHub(t, "EXECWIRE_HUB_PRESENCE_INTERVAL=1s")
	f := &harness.Fleet{Hub: h.Command, Executor: harness.NewCommand("serve", "--remote", h.url, "--executor-id", harness.ExecutorID)}
	f.Near = harness.NewProxy(t, "tcp", harness.AddressOf(h.URLs[harness.HubTransport]))
	f.Executor.Launch(t)
	f.AwaitExecutor(t)
	before := harness.NewCommand(append(f.Through("-i", "--"), "cat")...)
	input, err := before.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stdout harness.LockedBuffer
	before.Stdout = &stdout
	before.Launch(t)
	pass := func(line string) {
		t.Helper()
		if _, err := io.WriteString(input, line); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "the line is back", func() bool { return strings.HasSuffix(stdout.String(), line) })
	}
	pass("with space\n")

	h.fillDisk()
	h.expectUnavailable()
	pass("without\n")
	if got := harness.Run(t, nil, append(f.Through("--"), "echo", "reached")...); got != (harness.Result{Stdout: "reached\n"}) {
		t.Errorf("a new client: %+v", got)
	}
	if err := input.Close(); err != nil {
		t.Fatal(err)
	}
	if code := before.Await(t); code != 0 || stdout.String() != "with space\nwithout\n" {
		t.Errorf("the client that was connected ended with %d and %q", code, stdout.String())
	}
}
