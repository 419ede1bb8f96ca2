package browser

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// shapes draws what a recording can have: colours, wide and combining characters, runes in two writes, a
// scrolling region, tabs, a line of 100 kB, a change of the size, the alternate screen and line drawing.
const shapes = `printf '\033[1;31mred\033[0m \346\227'; sleep 0.1; printf '\245\346\234\254 e\314\201\n'
printf 'a\tb\033[5;10Hhere\033[3;20r\033[20;1H\n\n\nscrolled\033[r'
head -c 100000 /dev/zero | tr '\0' x; printf '\033[2J\033[H'
seq 1 200; printf 'ready\n'; read line; stty size; printf 'shrunk\n'; read line
printf '\033[?1049h\033[Hfull screen\033[3;5H\033(0lqk\033(B end'; sleep 0.1`

// The player of asciinema shows at the end of each recording what the server's screen shows.
func TestRecording_InThePlayerOfAsciinema_ShowsTheScreen(t *testing.T) {
	t.Parallel()
	server := start(t, nil, "execwire", "serve", "--until-stdin-closes", "--shutdown-grace-period", "0s", "--listen", "tcp://127.0.0.1:0")
	remote := func(name string, arguments ...string) string {
		t.Helper()
		return execwire(t, append([]string{name, "--server", server}, arguments...)...)
	}
	post := func(method, request string) {
		t.Helper()
		response, err := http.Post(strings.Replace(server, "tcp:", "http:", 1)+"/execwire.v1.ProcessService/"+method, "application/json", strings.NewReader(request))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		if body, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", method, body)
		}
	}
	dir := t.TempDir()
	read := func(file string) string {
		content, _ := os.ReadFile(filepath.Join(dir, file))
		return string(content)
	}
	remote("run", "--record", filepath.Join(dir, "run"), "--id", "early", "-t", "--", "sh", "-c", strings.ReplaceAll(shapes, "read line", "true"))
	remote("run", "--detach", "--id", "shapes", "-t", "--", "sh", "-c", shapes)
	remote("wait", "--screen", "ready", "shapes")
	recorded := make(chan struct{})
	go func() {
		defer close(recorded)
		remote("record", "-o", filepath.Join(dir, "record"), "--format", "v3", "shapes")
	}()
	for deadline := time.Now().Add(patience); !strings.Contains(read("record"), "ready"); {
		if time.Now().After(deadline) {
			t.Fatalf("nothing is recorded: %s", read("record"))
		}
		time.Sleep(10 * time.Millisecond)
	}
	post("ResizeTerminal", `{"processId": "shapes", "size": {"rows": 12, "columns": 40}}`)
	post("WriteStdin", `{"processId": "shapes", "data": "Cg=="}`)
	remote("wait", "--screen", "shrunk", "shapes")
	post("ResizeTerminal", `{"processId": "shapes", "size": {"rows": 30, "columns": 100}}`)
	post("WriteStdin", `{"processId": "shapes", "data": "Cg=="}`)
	<-recorded
	casts := map[string]string{"run": read("run"), "record": read("record"),
		"logs v2": remote("logs", "--cast", "shapes"), "logs v3": remote("logs", "--cast=v3", "shapes")}

	player := http.FileServer(http.Dir(filepath.Join(root, "web/node_modules/asciinema-player/dist/bundle")))
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			player.ServeHTTP(w, r)
			return
		}
		_, _ = io.WriteString(w, "<!doctype html><meta charset=utf-8><link rel=icon href=data:,><link rel=stylesheet href=/asciinema-player.css><script src=/asciinema-player.min.js></script><div id=player></div>")
	}))
	t.Cleanup(site.Close)
	for name, cast := range casts {
		t.Run(name, func(t *testing.T) {
			id := map[bool]string{true: "early", false: "shapes"}[name == "run"]
			var screen struct{ Lines []string }
			if err := json.Unmarshal([]byte(remote("screen", "--json", id)), &screen); err != nil {
				t.Fatal(err)
			}
			tab := open(t, site.URL)
			// A seek shows the end of the recording, which the last frame is drawn after.
			shown := call[[]string](t, tab, `async (cast, want) => {
				const player = AsciinemaPlayer.create({ data: cast }, document.getElementById("player"), { fit: false, preload: true });
				const lines = () => [...document.querySelectorAll(".ap-line")].map((line) => line.textContent.replaceAll("\u00a0", " ").trimEnd());
				for (const begin = performance.now(); performance.now() - begin < 120_000; ) {
					if (player.getDuration() !== undefined) {
						await player.seek("100%");
					}
					await new Promise((resolve) => setTimeout(resolve, 100));
					if (JSON.stringify(lines()) === JSON.stringify(want)) {
						break;
					}
				}
				return lines();
			}`, cast, screen.Lines)
			if !slices.Equal(shown, screen.Lines) {
				t.Errorf("the player shows\n%s\nand the server\n%s\nof %.2000s", strings.Join(shown, "\n"), strings.Join(screen.Lines, "\n"), cast)
			}
		})
	}
}
