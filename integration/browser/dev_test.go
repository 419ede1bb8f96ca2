package browser

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A dev server runs on an executor behind a hub, and the browser reaches it by a base URL.
type devServer struct {
	t   *testing.T
	hub string // its URL
}

const executor = "dev"

// newDevServer starts a hub and an executor.
func newDevServer(t *testing.T) devServer {
	t.Helper()
	hub := start(t, nil, "execwire-hub", "--listen", "http://127.0.0.1:0", "--preview-domain", "localhost")
	launch(t, exec.Command(filepath.Join(root, "bin/execwire"), "serve", "--until-stdin-closes", "--remote", hub, "--executor-id", executor))
	for !strings.Contains(execwire(t, "executors", "--hub", hub), executor+"\tconnected") {
	}
	return devServer{t, hub}
}

// args returns the arguments of a command with those that select the executor.
func (d devServer) args(command string, arguments ...string) []string {
	return append([]string{command, "--hub", d.hub, "--executor", executor}, arguments...)
}

// run starts a program on the executor by execwire run, which ends with the test, and returns
// the port on which it listens.
func (d devServer) run(directory string, program ...string) (port int) {
	d.t.Helper()
	watch := exec.Command(filepath.Join(root, "bin/execwire"), d.args("ports", "--watch", "--json")...)
	opened, err := watch.StdoutPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	launch(d.t, watch)
	launch(d.t, exec.Command(filepath.Join(root, "bin/execwire"), d.args("run", append([]string{"--cwd", directory, "--env-inherit", "all", "--"}, program...)...)...))
	lines := bufio.NewScanner(opened)
	for lines.Scan() {
		var change struct {
			Event, Address string
			Port           int
		}
		if err := json.Unmarshal(lines.Bytes(), &change); err != nil {
			d.t.Fatal(err)
		}
		if change.Event == "opened" {
			return change.Port
		}
	}
	d.t.Fatalf("no port of %v is open: %v", program, lines.Err())
	return 0
}

// ways are the ways from the browser to a port of the executor. Each returns the URL to open.
var ways = map[string]func(devServer, int) string{
	"port-forward": func(d devServer, port int) string {
		line := start(d.t, nil, "execwire", d.args("port-forward", fmt.Sprintf("0:%d", port))...)
		_, local, _ := strings.Cut(line, "Forwarding from ")
		local, _, _ = strings.Cut(local, " -> ")
		return "http://" + local
	},
	// A link, which the browser exchanges for a cookie.
	"preview": func(d devServer, port int) string {
		return strings.TrimSpace(execwire(d.t, d.args("preview", strconv.Itoa(port))...))
	},
}

func eachWay(t *testing.T, test func(t *testing.T, d devServer, way func(devServer, int) string)) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) { test(t, newDevServer(t), way) })
	}
}

func TestDevServer_Vite_ReloadsAChangedModule(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, d devServer, way func(devServer, int) string) {
		project := t.TempDir()
		module := filepath.Join(project, "message.js")
		write(t, filepath.Join(project, "index.html"), `<!doctype html><link rel=icon href=data:,><p></p><script type=module src=/main.js></script>`)
		write(t, filepath.Join(project, "main.js"), `
			import { message } from "./message.js";
			const show = (text) => (document.querySelector("p").textContent = text);
			show(message);
			import.meta.hot.accept("./message.js", (changed) => show(changed.message));
			// What changes before the websocket is open is not reported.
			import.meta.hot.on("test:open", () => (window.since = performance.timeOrigin));
			import.meta.hot.send("test:open");`)
		write(t, module, `export const message = "before";`)
		write(t, filepath.Join(project, "vite.config.mjs"), `
			const answer = (server) => server.ws.on("test:open", (_, client) => client.send("test:open"));
			export default {
				server: { host: "127.0.0.1", allowedHosts: true }, cacheDir: ".cache",
				plugins: [{ name: "test", configureServer: answer }],
			};`)
		vite := filepath.Join(root, "integration/browser/vite/node_modules/vite/bin/vite.js")
		port := d.run(project, "node", vite, "--no-open")

		tab := open(t, way(d, port))
		// Resolves when the page shows a text and its websocket is open, with when it was loaded.
		const shows = `(text) => new Promise((resolve) => {
			const check = () => document.querySelector("p")?.textContent === text && window.since && resolve(String(window.since));
			new MutationObserver(check).observe(document, { subtree: true, childList: true, characterData: true });
			check();
			setInterval(check, 50);
		})`
		loaded := call[string](t, tab, shows, "before")
		write(t, module, `export const message = "after";`)
		if since := call[string](t, tab, shows, "after"); since != loaded {
			t.Errorf("the page was loaded at %s, and again at %s", loaded, since)
		}
	})
}

func TestDevServer_Python_IsShown(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, d devServer, way func(devServer, int) string) {
		directory := t.TempDir()
		write(t, filepath.Join(directory, "index.html"), `<!doctype html><link rel=icon href=data:,><title>by Python</title><script src=large.js></script>`)
		write(t, filepath.Join(directory, "large.js"), "const filler = `"+strings.Repeat("filler\n", 1<<20)+"`;\nwindow.size = filler.length;\n")
		port := d.run(directory, "python3", "-u", "-m", "http.server", "--bind", "127.0.0.1", "0")
		got := call[[]any](t, open(t, way(d, port)), `async () => [document.title, window.size, (await fetch("/none")).status]`)
		if want := []any{"by Python", 7.0 * (1 << 20), 404.0}; !slices.Equal(got, want) {
			t.Errorf("the page shows %v, want %v", got, want)
		}
	})
}
