package operations

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

var (
	//go:embed testdata/reach.py
	reachScript string
	//go:embed testdata/keep.py
	keepScript string
)

// reachPlan says what testdata/reach.py tries.
type reachPlan struct {
	Addresses map[string]any `json:"addresses"` // the path of a unix socket, or host and port
	Owned     []string       `json:"owned"`     // names of addresses on which the server listens
	Keeper    string         `json:"keeper"`    // the socket of testdata/keep.py
	Marker    string         `json:"marker"`    // a file that exists only if a request was served
	Secret    string         `json:"secret"`    // a file with secretText
	Timeout   float64        `json:"timeout"`   // in seconds
	Confined  bool           `json:"confined"`  // with the ways that only a confined process tries

	Requests map[string]string `json:"requests,omitempty"` // by URL of a listener, instead of those to a server
}

// parseAttempts parses the output of testdata/reach.py, which has this number of results.
func parseAttempts(t *testing.T, stdout string, want int) (all []attempted) {
	t.Helper()
	for line := range strings.Lines(stdout) {
		var one attempted
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, one)
	}
	if len(all) != want {
		t.Errorf("%d results, want %d: %v", len(all), want, all)
	}
	return all
}

// argv returns the command line that tries the plan.
func (p reachPlan) argv(t *testing.T) []string {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"/usr/bin/python3", "-c", reachScript, string(text)}
}

const secretText = "only for those outside"

// attempted is one result of testdata/reach.py.
type attempted struct{ Way, Result string }

// refusedText is how a confined process is refused, and one that may be confined.
const refusedText = "process is not accepted without a token: "

// A confined process gets nothing from its server: by no listener and address, with no
// protocol over HTTP, not from a descendant that has left it, and not by a connection that a
// process outside has open, too. TestConfined_ProcessesAreRefusedByTheirOwnServer has gRPC and
// the client's websocket.
func TestConfined_ReachesNoListener(t *testing.T) {
	harness.Slow(t)
	backends(t, func(t *testing.T, settings ...string) {
		dir := harness.ShortDir(t)
		plan := reachPlan{Keeper: filepath.Join(dir, "keeper"), Marker: filepath.Join(dir, "marker"), Secret: filepath.Join(dir, "secret"),
			Timeout: harness.StepTimeout.Seconds()}
		if err := os.WriteFile(plan.Secret, []byte(secretText), 0o600); err != nil {
			t.Fatal(err)
		}
		keep(t, plan.Keeper)
		server := harness.NewCommand("serve", "--listen", "unix://"+filepath.Join(dir, "s"),
			"--listen", "tcp://127.0.0.1:0", "--listen", "ws://127.0.0.1:0", "--listen", "tcp://[::1]:0")
		server.Env = append(server.Env, settings...)
		urls := server.Listen(t, 4)
		plan.Addresses, plan.Owned = addressesOf(t, urls)
		run := func(flags ...string) (all []attempted) {
			t.Helper()
			plan.Confined = len(flags) > 0
			got := harness.Run(t, nil, slices.Concat([]string{"run", "--server", urls[0]}, flags, []string{"--"}, plan.argv(t))...)
			if got.Code != 0 {
				t.Fatalf("%q: %+v", flags, got)
			}
			want := 4*len(plan.Addresses) + 3*len(plan.Owned) - 1 // nothing is handed over on the unix socket
			if plan.Confined {
				want += len(plan.Owned) - 1
			}
			return parseAttempts(t, got.Stdout, want)
		}
		for _, one := range run("--sandbox", "read-only", "--network") {
			if !one.isOwned(plan) && strings.HasPrefix(one.Result, "errno") {
				continue // nothing listens there
			}
			if !strings.Contains(one.Result, refusedText) || !strings.HasPrefix(one.Result, "HTTP/1.1 403 ") || strings.Contains(one.Result, secretText) {
				t.Errorf("with the network, %s: %s", one.Way, one.Result)
			}
		}
		for _, one := range run("--sandbox", "read-only") {
			if !strings.HasPrefix(one.Result, "errno") {
				t.Errorf("without the network, %s: %s", one.Way, one.Result)
			}
		}
		if _, err := os.Stat(plan.Marker); err == nil {
			t.Error("a request of a confined process was served")
		}
		if list := harness.Run(t, nil, "ps", "--server", urls[0], "--all"); strings.Contains(list.Stdout, "\nescaped-") {
			t.Errorf("a confined process has started another: %s", list.Stdout)
		}
		// The same attempts succeed outside.
		served := 0
		for _, one := range run() {
			if strings.HasPrefix(one.Result, "HTTP/1.1 2") || strings.HasPrefix(one.Result, "HTTP/1.1 101 ") {
				served++
			} else if one.isOwned(plan) {
				t.Errorf("outside, %s: %s", one.Way, one.Result)
			}
		}
		if want := 7*len(plan.Owned) - 1; served < want {
			t.Errorf("%d attempts were served outside, want %d", served, want)
		}
	})
}

// A confined process gets nothing from a hub, a gateway and a forward without tables of principals,
// which are not its server. A process that is not confined is accepted while a confined one runs.
func TestConfined_ReachesNoOtherListener(t *testing.T) {
	harness.Slow(t)
	hub := harness.NewHub(t, nil).URLs[harness.HubTransport]
	other := harness.Serve(t).URLs[harness.TCPTransport]
	gateway := harness.NewCommand("gateway", "--upstream", other, "--listen", "ws://127.0.0.1:0").Listen(t, 1)[0]
	forward := harness.NewCommand("forward", "--server", other, "--listen", "tcp://127.0.0.1:0").Listen(t, 1)[0]
	keeper := filepath.Join(harness.ShortDir(t), "keeper")
	keep(t, keeper)
	request := func(head string, fields ...string) string {
		return head + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n" + strings.Join(fields, "\r\n") + "\r\n\r\n"
	}
	requests := map[string]string{
		hub: request("GET /v1/executors", "Connection: close"),
		gateway: request("GET /", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
			"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="),
	}
	for _, backend := range []string{"bubblewrap", "landlock"} {
		server := harness.Serve(t, "EXECWIRE_SANDBOX_BACKENDS="+backend, "EXECWIRE_CGROUP=off")
		confined := server.Through(harness.UnixTransport, "--sandbox", "read-only", "--network", "--")
		plain := server.Through(harness.UnixTransport, "--")
		sleeper := server.Through(harness.UnixTransport, "--sandbox", "read-only", "--network", "--detach", "--id", "sleeper", "--", "sleep", "1000")
		if got := harness.Run(t, nil, sleeper...); got.Code != 0 {
			t.Fatalf("%+v", got)
		}
		plan := reachPlan{Keeper: keeper, Requests: requests, Timeout: harness.StepTimeout.Seconds()}
		plan.Addresses, plan.Owned = addressesOf(t, []string{hub, gateway})
		want := len(plan.Addresses) + 3*len(plan.Owned)
		for _, outside := range []harness.Result{
			harness.Run(t, nil, append(plain, plan.argv(t)...)...),
			harness.Prepare(exec.Command(plan.argv(t)[0], plan.argv(t)[1:]...)).Complete(t, nil),
		} {
			for _, one := range parseAttempts(t, outside.Stdout, want) {
				if one.isOwned(plan) && !strings.HasPrefix(one.Result, "HTTP/1.1 200 ") && !strings.HasPrefix(one.Result, "HTTP/1.1 101 ") {
					t.Errorf("%s, outside, %s: %s", backend, one.Way, one.Result)
				}
			}
		}
		plan.Confined = true
		got := harness.Run(t, nil, append(confined, plan.argv(t)...)...)
		for _, one := range parseAttempts(t, got.Stdout, want+len(plan.Owned)) {
			if !one.isOwned(plan) && strings.HasPrefix(one.Result, "errno") {
				continue // nothing listens there
			}
			if !strings.HasPrefix(one.Result, "HTTP/1.1 403 ") || !strings.Contains(one.Result, refusedText) {
				t.Errorf("%s, %s: %s", backend, one.Way, one.Result)
			}
		}
		// gRPC, from a descendant that has left its parents.
		argv := []string{"sh", "-c", `(setsid sh -c 'exec "$0" run --server ` + forward + ` -- echo ran' "$0" &) | cat`, harness.Execwire}
		if got := harness.Run(t, nil, append(confined, argv...)...); strings.Contains(got.Stdout, "ran") || !strings.Contains(got.Stderr, refusedText) {
			t.Errorf("%s, the forward: %+v", backend, got)
		}
		if got := harness.Run(t, nil, append(plain, argv...)...); got != (harness.Result{Stdout: "ran\n"}) {
			t.Errorf("%s, outside, the forward: %+v", backend, got)
		}
	}
}

// isOwned reports whether the server listens on the address of an attempt.
func (a attempted) isOwned(plan reachPlan) bool {
	_, name, _ := strings.Cut(a.Way, " by ")
	return slices.Contains(plan.Owned, name)
}

// addressesOf returns the addresses of listeners and others that could lead to them, and the
// names of those on which the server listens.
func addressesOf(t *testing.T, urls []string) (all map[string]any, owned []string) {
	t.Helper()
	all = map[string]any{}
	for _, url := range urls {
		scheme, address, _ := strings.Cut(url, "://")
		if scheme == "unix" {
			all["the unix socket"] = address
			all["an abstract unix socket"] = "@" + address
			owned = append(owned, "the unix socket")
			continue
		}
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			t.Fatal(err)
		}
		owned = append(owned, url)
		all[url] = []any{at.Addr().String(), at.Port()}
		if at.Addr().Is4() {
			all["any address, for "+url] = []any{"0.0.0.0", at.Port()}
			all["an address in IPv6, for "+url] = []any{"::ffff:127.0.0.1", at.Port()}
			all["a loopback address, for "+url] = []any{"127.0.0.2", at.Port()}
			all["a name, for "+url] = []any{"localhost", at.Port()}
		} else {
			all["any address, for "+url] = []any{"::", at.Port()}
		}
		if other := otherAddress(t); other != "" {
			all["another address, for "+url] = []any{other, at.Port()}
		}
	}
	return all, owned
}

// otherAddress returns an address of this host beyond loopback; empty if there is none.
func otherAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().Is4() && !prefix.Addr().IsLoopback() {
			return prefix.Addr().String()
		}
	}
	return ""
}

// keep runs testdata/keep.py until the test ends.
func keep(t *testing.T, socket string) {
	t.Helper()
	c := harness.Prepare(exec.Command("/usr/bin/python3", "-c", keepScript, socket))
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Launch(t)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the keeper does not listen: %v: %s", err, c.Errors.String())
	}
}
