// Package browser tests the SDK for TypeScript, and web servers behind a hub, in a real browser:
// Chromium, driven by chromedp. It is a module of its own, so that chromedp stays out of the
// main one, and runs by `make test-browser`, which installs what it needs.
package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// patience bounds a test in the browser. Nothing waits for it unless something hangs.
const patience = 5 * time.Minute

// chromium is Chromium without its own user interface, which takes half of the processor time,
// as Debian installs it. The script in /usr/bin does not pass signals to it.
const chromium = "/usr/lib/chromium/chromium-headless-shell"

var (
	root    = mustAbs("../..")
	browser context.Context // of the browser; tabs are made from it
)

func mustAbs(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		panic(err)
	}
	return abs
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run runs the tests with a browser.
func run(m *testing.M) int {
	profile, err := os.MkdirTemp("", "execwire-browser-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(profile) }()
	// Without its sandbox, because it runs as root, and shows pages of these tests only.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.WindowSize(1280, 800), chromedp.UserDataDir(profile), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.IgnoreCertErrors, chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	browser, _ = chromedp.NewContext(allocator)
	if err := chromedp.Do(browser); err != nil {
		fmt.Fprintf(os.Stderr, "Chromium does not start: %v; run these tests by make test-browser, which installs it\n", err)
		return 1
	}
	defer func() {
		if err := chromedp.Cancel(browser); err != nil {
			fmt.Fprintf(os.Stderr, "Chromium does not end: %v\n", err)
		}
	}()
	return m.Run()
}

// bundle returns the SDK, which make console has built, as a script that defines the variable
// execwire.
var bundle = sync.OnceValues(func() ([]byte, error) {
	esbuild := exec.Command("node_modules/.bin/esbuild", "--bundle", "--format=iife", "--global-name=execwire", "--platform=browser", "dist/index.js")
	esbuild.Dir, esbuild.Stderr = filepath.Join(root, "sdk/typescript"), os.Stderr
	return esbuild.Output()
})

// site serves a page with the SDK, and passes other requests to a server, if it has one.
type site struct {
	*httptest.Server
	backend *url.URL
}

func newSite(t *testing.T) *site {
	t.Helper()
	script, err := bundle()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(s.backend) }}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/":
			_, _ = io.WriteString(w, "<!doctype html><meta charset=utf-8><link rel=icon href=data:,><title>page</title><script src=/execwire.js></script>")
		case r.URL.Path == "/execwire.js":
			w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
			_, _ = w.Write(script)
		case s.backend != nil:
			proxy.ServeHTTP(w, r)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// open opens a tab with a profile of its own at a URL. It is closed after the test, or if that
// takes too long.
func open(t *testing.T, url string) (tab context.Context) {
	t.Helper()
	tab, closeTab := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	tab, cancel := context.WithTimeoutCause(tab, patience, errors.New("the browser did not answer in time"))
	t.Cleanup(func() {
		cancel()
		closeTab()
	})
	if err := chromedp.Do(tab, chromedp.Navigate(url)); err != nil {
		t.Fatalf("open %s: %v", url, err)
	}
	return tab
}

// call calls an asynchronous function of JavaScript in a tab, and returns its result.
func call[T any](t *testing.T, tab context.Context, function string, arguments ...any) T {
	t.Helper()
	encoded, err := json.Marshal(append([]any{}, arguments...))
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("(async () => JSON.stringify(await (%s)(...%s)))()", function, encoded)
	answer, err := chromedp.Run(tab, chromedp.Evaluate[string](script, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatal(err)
	}
	var result T
	if err := json.Unmarshal([]byte(answer), &result); err != nil {
		t.Fatal(err)
	}
	return result
}

// launch starts a program, which ends with the test.
func launch(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	log := new(lockedBuffer)
	cmd.Stderr = log
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("%v: run these tests by make test-browser, which builds it", err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Signal(os.Interrupt) // for what does not end with its input; fails if it has exited
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%v: %s", cmd.Args, log)
		}
	})
}

// start launches a program of ours and returns its first line.
func start(t *testing.T, env []string, name string, arguments ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(root, "bin", name), arguments...)
	cmd.Env = append(os.Environ(), env...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	launch(t, cmd)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("%s prints nothing: %v", name, err)
	}
	return strings.TrimSpace(line)
}

// serve starts a server that pages of an origin may call, and returns its HTTP URL.
func serve(t *testing.T, origin string) string {
	t.Helper()
	listening := start(t, nil, "execwire", "serve", "--until-stdin-closes", "--listen", "tcp://127.0.0.1:0", "--allowed-origins", origin)
	return strings.Replace(listening, "tcp://", "http://", 1)
}

// execwire runs a command to its end and returns its output.
func execwire(t *testing.T, arguments ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(root, "bin/execwire"), arguments...)
	output, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("execwire %v: %v: %s", arguments, err, exit.Stderr)
		}
		t.Fatal(err)
	}
	return string(output)
}

// lockedBuffer is a buffer for the output of a program that still runs.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
