package browser

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// console is a server and the command that shows it.
type console struct {
	t      *testing.T
	server string
	link   string
}

func newConsole(t *testing.T, options ...string) console {
	t.Helper()
	server := start(t, nil, "execwire", append([]string{"serve", "--until-stdin-closes", "--shutdown-grace-period", "0s", "--listen", "tcp://127.0.0.1:0"}, options...)...)
	return console{t, server, start(t, nil, "execwire", "console", "--server", server, "--no-open")}
}

// run starts a process without an owner.
func (c console) run(id string, arguments ...string) {
	c.t.Helper()
	execwire(c.t, append([]string{"run", "--server", c.server, "--detach", "--id", id}, arguments...)...)
}

// screenshot writes a picture of the tab for docs/console.md, if that is asked for.
func screenshot(t *testing.T, tab context.Context, name string) {
	t.Helper()
	dir := os.Getenv("EXECWIRE_SCREENSHOTS")
	if dir == "" {
		return
	}
	picture, err := chromedp.Run(tab, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644); err != nil {
		t.Fatal(err)
	}
}

// until waits until an expression of JavaScript is true in the page.
func until(t *testing.T, tab context.Context, expression string) {
	t.Helper()
	text := call[string](t, tab, fmt.Sprintf(`async () => {
		for (const begin = performance.now(); !(%s); ) {
			if (performance.now() - begin > 120_000) {
				return document.body.innerText.slice(0, 2000) || "nothing";
			}
			await new Promise((resolve) => setTimeout(resolve, 20));
		}
		return "";
	}`, expression))
	if text != "" {
		screenshot(t, tab, "failed")
		t.Fatalf("it does not become true that %s; the page shows %s", expression, text)
	}
}

// waitVisible waits for an element, also of the page that the tab goes to.
func waitVisible(t *testing.T, tab context.Context, selector string) {
	t.Helper()
	if err := chromedp.Do(tab, chromedp.WaitVisible(selector)); err != nil {
		t.Fatal(err)
	}
}

// press presses keys as a keyboard does: in a browser a key that the page handles when it goes
// down makes no character. chromedp.KeyEvent sends both.
func press(t *testing.T, tab context.Context, keys string) {
	t.Helper()
	for _, key := range keys {
		events := kb.Encode(key)
		down, up := events[0], events[len(events)-1]
		down.Text, down.UnmodifiedText = events[len(events)-2].Text, events[len(events)-2].UnmodifiedText
		for _, event := range []*input.DispatchKeyEventParams{down, up} {
			err := chromedp.Do(tab, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
				_, err := cdp.Call(ctx, target, input.DispatchKeyEvent, *event)
				return err
			}))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// show opens a place of the page.
func show(t *testing.T, tab context.Context, place string) {
	t.Helper()
	call[bool](t, tab, `async (place) => { location.hash = place; return true }`, place)
}

// terminalLine is an expression for a line of the terminal of the page.
func terminalLine(n int) string {
	return fmt.Sprintf(`document.querySelector(".xterm-place")?.terminal?.buffer.active.getLine(%d)?.translateToString().trimEnd()`, n)
}

func TestConsole_ShowsProcessesAndOutput(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.run("build", "--", "sh", "-c", `for i in $(seq 1 3000); do printf "\033[32mok\033[0m step %d https://example.org/x?%d\n" $i $i; [ $((i%50)) = 0 ] && echo "warning: <b>careful</b> $i" >&2; done; exec sleep 1000`)
	c.run("failed", "--", "sh", "-c", "echo no >&2; exit 3")
	tab := open(t, c.link)
	until(t, tab, `document.querySelectorAll("#processes tbody tr").length === 2 && document.body.textContent.includes("exit 3")`)
	screenshot(t, tab, "console-processes")
	show(t, tab, "#/process/default/build")
	until(t, tab, `document.querySelector("[data-lines]")?.dataset.lines === "3060" && document.querySelector(".lines").textContent.includes("step 3000")`)
	screenshot(t, tab, "console-output")
	got := call[struct {
		Rows, Bold int
		Link       string
	}](t, tab, `async () => ({
		rows: document.querySelectorAll(".row").length,
		bold: document.querySelectorAll(".row b").length,
		link: [...document.querySelectorAll(".row a")].at(-1).rel,
	})`)
	if got.Rows > 200 || got.Bold != 0 || got.Link != "noopener noreferrer" {
		t.Errorf("%+v", got)
	}
	// A search finds what is not in the document.
	call[bool](t, tab, `async () => { document.querySelector(".output input[type=search]").focus(); return true }`)
	press(t, tab, "careful</b> 1500\r")
	until(t, tab, `document.querySelector(".row.hit.stderr mark")?.textContent === "careful</b> 1500"`)
	// The answer to an end is verified.
	call[bool](t, tab, `async () => { document.querySelector("button.danger").click(); return true }`)
	until(t, tab, `/no descendant is left/.test(document.querySelector(".answer")?.textContent)`)
	until(t, tab, `document.querySelector(".state").textContent === "signal 9"`)
}

// The page of a process shows what it uses and its ports, sends it signals, and has all of its exit record.
func TestConsole_OneProcess(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.run("serve", "--", "python3", "-u", "-c", `import http.server, os, signal
signal.signal(signal.SIGRTMIN+2, lambda *_: print("got it"))
signal.signal(signal.SIGUSR1, lambda *_: os._exit(7))
s = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
print(s.server_port)
s.serve_forever()`)
	tab := open(t, c.link)
	until(t, tab, `document.querySelector("h1")`)
	show(t, tab, "#/process/default/serve")
	// The port, and how to reach it.
	until(t, tab, `/^127\.0\.0\.1:\d+$/.test(document.querySelector("button.port")?.textContent)`)
	call[bool](t, tab, `async () => { document.querySelector("button.port").click(); return true }`)
	until(t, tab, `document.querySelector(".answer a") && document.querySelector(".row")`)
	got := call[struct{ Port, Output, Command, Link, Rel, Target string }](t, tab, `async () => {
		const a = document.querySelector(".answer a");
		return {
			port: document.querySelector("button.port").textContent.split(":")[1], output: document.querySelector(".row").textContent,
			command: document.querySelector(".answer code").textContent, link: a.href, rel: a.rel, target: a.target,
		};
	}`)
	if !strings.HasSuffix(got.Output, got.Port) || got.Command != "execwire port-forward "+got.Port || got.Link != "http://localhost:"+got.Port+"/" ||
		got.Rel != "noopener noreferrer" || got.Target != "_blank" {
		t.Errorf("%+v", got)
	}
	// What it uses. The number of samples is bounded by the plot.
	const clickTab = `async (name) => { [...document.querySelectorAll("[role=tab]")].find((b) => b.textContent === name).click(); return true }`
	call[bool](t, tab, clickTab, "Usage")
	until(t, tab, `document.querySelectorAll(".plot polyline").length === 4 && /MiB$/.test(document.querySelectorAll(".plot strong")[1].textContent) && document.querySelectorAll(".plot strong")[3].textContent === "1"`)
	screenshot(t, tab, "console-usage")
	// All signals of Linux.
	send := func(signal string) {
		t.Helper()
		call[bool](t, tab, `async (name) => {
			const menu = document.querySelector("select");
			menu.value = [...menu.options].find((o) => o.textContent.startsWith(name + " (")).value;
			menu.dispatchEvent(new Event("change", { bubbles: true }));
			return true;
		}`, signal)
		until(t, tab, fmt.Sprintf(`document.querySelector(".bar + .answer")?.textContent === %q`, signal+" was sent."))
	}
	if signals := call[int](t, tab, `async () => document.querySelector("select").options.length - 1`); signals != 31+31 {
		t.Errorf("the menu has %d signals", signals)
	}
	call[bool](t, tab, clickTab, "Output")
	send("SIGRTMIN+2")
	until(t, tab, `document.querySelector(".lines").textContent.includes("got it")`)
	send("SIGUSR1")
	until(t, tab, `document.querySelector(".state").textContent === "exit 7"`)
	call[bool](t, tab, clickTab, "Details")
	until(t, tab, `document.querySelector(".details")?.textContent.includes("exit code 7")`)
	details := call[string](t, tab, `async () => document.querySelector(".details").textContent`)
	for _, want := range []string{"Ended", "Causeexited", "Wall time", "Processor time"} {
		if !strings.Contains(details, want) {
			t.Errorf("the details lack %q: %s", want, details)
		}
	}
	if menus := call[int](t, tab, `async () => document.querySelectorAll("select").length`); menus != 0 {
		t.Error("signals can be sent to a process that has ended")
	}
}

func TestConsole_Audit(t *testing.T) {
	t.Parallel()
	const readOnly = "a-token-that-is-long-enough-to-be-one"
	dir := t.TempDir()
	log := filepath.Join(dir, "audit.log")
	c := newConsole(t, "--audit-file", log)
	c.run("build", "--", "sh", "-c", "exit 3", "<b>argument</b>")
	deadline := time.Now().Add(patience)
	for text := []byte(nil); !bytes.Contains(text, []byte("process.end")); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the end is not recorded: %s", text)
		}
		var err error
		if text, err = os.ReadFile(log); err != nil {
			t.Fatal(err)
		}
	}
	tab := open(t, c.link)
	until(t, tab, `document.querySelector("h1")`)
	show(t, tab, "#/audit")
	until(t, tab, `[...document.querySelectorAll("#audit tbody tr")].some((row) => /process\.start/.test(row.textContent) && row.textContent.includes("<b>argument</b>")) && document.querySelector("#audit").textContent.includes("exit 3")`)
	screenshot(t, tab, "console-audit")
	call[bool](t, tab, `async () => { document.querySelector("input[type=search]").focus(); return true }`)
	press(t, tab, "process.end")
	until(t, tab, `document.querySelectorAll("#audit tbody tr").length === 1 && /^1 of the last/.test(document.querySelector(".count").textContent)`)
	call[bool](t, tab, `async () => { document.querySelector("#audit button").click(); return true }`)
	until(t, tab, `JSON.parse(document.querySelector(".record")?.textContent ?? "{}").exit?.code === 3`)

	// A server without an audit log says so, and who may not read it learns that.
	without := open(t, newConsole(t).link)
	until(t, without, `document.querySelector("h1")`)
	show(t, without, "#/audit")
	until(t, without, `document.querySelector(".note")?.textContent.includes("keeps no audit log")`)
	write(t, filepath.Join(dir, "token"), readOnly)
	principals := write(t, filepath.Join(dir, "principals.toml"),
		fmt.Sprintf("[[principal]]\nname = \"page\"\ntoken_file = %q\nallow = [\"all\"]\n", filepath.Join(dir, "token")))
	server := start(t, nil, "execwire", "serve", "--until-stdin-closes", "--shutdown-grace-period", "0s", "--listen", "tcp://127.0.0.1:0",
		"--audit-file", filepath.Join(dir, "other.log"), "--principals-file", principals)
	denied := open(t, start(t, nil, "execwire", "console", "--server", server, "--token-file", filepath.Join(dir, "token"), "--no-open"))
	until(t, denied, `document.querySelector("h1")`)
	show(t, denied, "#/audit")
	until(t, denied, `document.querySelector(".problem")?.textContent.includes('the permission "admin"') && document.querySelectorAll("#audit tbody tr").length === 0`)
}

// Two browsers show one terminal, and a person types in each of them.
func TestConsole_TwoBrowsersOnOneTerminal(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	first := open(t, c.link)
	until(t, first, `document.querySelector("h1")`)
	second := open(t, call[string](t, first, `async () => (await fetch("/session", { method: "PUT" })).text()`))
	show(t, first, "#/start")
	until(t, first, `document.querySelector("input[name=command]")`)
	call[bool](t, first, `async () => { document.querySelector("input[name=id]").value = "shared"; document.querySelector("input[name=command]").focus(); return true }`)
	press(t, first, "PS1='$ ' exec sh\r")
	until(t, first, `location.hash === "#/process/default/shared"`)
	show(t, second, "#/process/default/shared")
	for _, tab := range []context.Context{first, second} {
		until(t, tab, terminalLine(0)+` === "$"`)
	}
	press(t, first, "echo $((40+2))\r")
	for _, tab := range []context.Context{first, second} {
		until(t, tab, terminalLine(1)+` === "42" && `+terminalLine(2)+` === "$"`)
	}
	press(t, second, "echo $((40+3)) # ü\r") // the terminal has UTF-8
	for _, tab := range []context.Context{first, second} {
		until(t, tab, terminalLine(3)+` === "43" && `+terminalLine(4)+` === "$"`)
	}
	screenshot(t, first, "console-terminal")
	// A page that is loaded again shows the same, and goes on. What is typed before it has shown that is not
	// lost. A full-screen program has no earlier output.
	if err := chromedp.Do(second, chromedp.Reload()); err != nil {
		t.Fatal(err)
	}
	until(t, second, `document.activeElement?.matches(".xterm-helper-textarea")`)
	press(t, second, "printf '\\033[?1049h\\033[Hfull screen'; read x; printf '\\033[?1049l'\r")
	for _, tab := range []context.Context{first, second} {
		until(t, tab, terminalLine(0)+` === "full screen"`)
	}
	if err := chromedp.Do(first, chromedp.Reload()); err != nil {
		t.Fatal(err)
	}
	until(t, first, terminalLine(0)+` === "full screen" && document.querySelector(".xterm-place").terminal.buffer.active.type === "alternate"`)
	press(t, second, "\r")
	for _, tab := range []context.Context{first, second} {
		until(t, tab, `document.querySelector(".xterm-place").terminal.buffer.active.type === "normal" && `+terminalLine(3)+` === "43"`)
	}
}

// A person edits a file with vi in the page. What is typed while the network is away is applied once, when
// it is back, and the screen is that of the editor.
func TestConsole_Editor_SurvivesACut(t *testing.T) {
	t.Parallel()
	server := start(t, nil, "execwire", "serve", "--until-stdin-closes", "--shutdown-grace-period", "0s", "--listen", "tcp://127.0.0.1:0")
	between := newCutter(t, strings.TrimPrefix(server, "tcp://"))
	link := start(t, nil, "execwire", "console", "--server", "tcp://"+between.Addr().String(), "--no-open")
	file := filepath.Join(t.TempDir(), "file")
	execwire(t, "run", "--server", server, "--detach", "--id", "editor", "-t", "--", "vi", "-u", "NONE", "-N", file)
	tab := open(t, link)
	until(t, tab, `document.querySelector("h1")`)
	show(t, tab, "#/process/default/editor")
	until(t, tab, terminalLine(1)+` === "~"`)
	press(t, tab, "ione\r")
	until(t, tab, terminalLine(0)+` === "one"`)
	between.cut()
	press(t, tab, "two")
	until(t, tab, terminalLine(1)+` === "two"`)
	between.cut()
	press(t, tab, "\x1bggOzero\x1b")
	until(t, tab, terminalLine(0)+` === "zero" && `+terminalLine(1)+` === "one" && `+terminalLine(2)+` === "two" && `+terminalLine(3)+` === "~"`)
	// What is shown is found, and saved as a page.
	call[bool](t, tab, `async () => { document.querySelector(".terminal input[type=search]").focus(); return true }`)
	press(t, tab, "two\r")
	until(t, tab, `document.querySelector(".xterm-place").terminal.getSelection() === "two"`)
	saved := call[string](t, tab, `async () => {
		const made = URL.createObjectURL;
		const saved = new Promise((resolve) => (URL.createObjectURL = (blob) => (resolve(blob.text()), made.call(URL, blob))));
		[...document.querySelectorAll(".terminal button")].find((b) => b.textContent === "Save as HTML").click();
		URL.createObjectURL = made;
		return saved;
	}`)
	if !strings.Contains(saved, "zero") {
		t.Errorf("the saved page is %s", saved)
	}
	call[bool](t, tab, `async () => { document.querySelector(".xterm-place").terminal.focus(); return true }`)
	press(t, tab, ":wq\r")
	until(t, tab, `document.querySelector(".state")?.textContent === "exit 0"`)
	if content, err := os.ReadFile(file); string(content) != "zero\none\ntwo\n" {
		t.Errorf("the file has %q: %v", content, err)
	}
}

// The page plays a recording of the server in a preview, and two beside each other.
func TestConsole_Recordings(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	dir := t.TempDir()
	for name, word := range map[string]string{"before.cast": "first", "after #2.cast": "second"} {
		execwire(t, "run", "--server", c.server, "--record", filepath.Join(dir, name), "-t", "--", "sh", "-c", `printf "\033[32m`+word+`\033[0m\n"; sleep 0.2; printf "end of `+word+`\n"`)
	}
	if err := os.WriteFile(filepath.Join(dir, "broken.cast"), []byte("no recording\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tab := open(t, c.link)
	until(t, tab, `document.querySelector("h1")`)
	pick := func(name string) {
		t.Helper()
		until(t, tab, `[...document.querySelectorAll("button.name")].some((b) => b.textContent === "`+name+`")`)
		call[bool](t, tab, `async (name) => { [...document.querySelectorAll("button.name")].find((b) => b.textContent === name).click(); return true }`, name)
	}
	show(t, tab, "#/files"+dir)
	pick("broken.cast")
	until(t, tab, `/^This is no recording/.test(document.querySelector(".preview .problem")?.textContent)`)
	pick("after #2.cast")
	until(t, tab, `document.querySelector(".preview .ap-player")`)
	call[bool](t, tab, `async () => { [...document.querySelectorAll(".preview a")].find((a) => a.textContent === "Compare…").click(); return true }`)
	until(t, tab, `location.hash.startsWith("#/recordings/") && document.querySelector("input[name=other]") && document.querySelector(".ap-player")`)
	call[bool](t, tab, `async () => { document.querySelector("input[name=other]").focus(); return true }`)
	press(t, tab, filepath.Join(dir, "before.cast")+"\r")
	until(t, tab, `document.querySelectorAll(".recordings .ap-player").length === 2`)
	call[bool](t, tab, `async () => { [...document.querySelectorAll("button")].find((b) => b.textContent === "Play both").click(); return true }`)
	shown := func(n int) string {
		return fmt.Sprintf(`document.querySelectorAll(".recordings")[%d].textContent`, n)
	}
	until(t, tab, shown(0)+`.includes("end of second") && `+shown(1)+`.includes("end of first")`)
	screenshot(t, tab, "console-recordings")
	call[bool](t, tab, `async () => { [...document.querySelectorAll("button")].find((b) => b.textContent === "Both to the beginning").click(); return true }`)
	until(t, tab, `!`+shown(0)+`.includes("end of") && !`+shown(1)+`.includes("end of")`)
	// What a process has written until now, while it runs.
	execwire(t, "run", "--server", c.server, "--detach", "--id", "playing", "-t", "--", "sh", "-c", `printf "\033[32mplayed\033[0m\n"; cat`)
	execwire(t, "wait", "--server", c.server, "--pattern", "played", "playing")
	show(t, tab, "#/process/default/playing")
	until(t, tab, `[...document.querySelectorAll("[role=tab]")].some((b) => b.textContent === "Play")`)
	call[bool](t, tab, `async () => { [...document.querySelectorAll("[role=tab]")].find((b) => b.textContent === "Play").click(); return true }`)
	until(t, tab, `document.querySelector(".process .ap-player")?.textContent.includes("played")`)
}

// A process that prints markup, escape sequences and a line of 10 MB changes nothing but its output.
func TestConsole_HostileOutput(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.run("hostile", "--", "sh", "-c", `printf '<script>window.hacked = 1</script><img src=x onerror="window.hacked = 2">\n'
		printf '\033]0;title\007\033]52;c;aGFja2Vk\007\033[31mred\033[999999999999999mno\033[2J\033[?1049h\033]8;;javascript:alert(1)\033\\link\033]8;;\033\\\n'
		printf '\200\201 \377\n'; head -c 10000000 /dev/zero | tr '\0' x; echo; echo end`)
	tab := open(t, c.link)
	until(t, tab, `document.querySelector("h1")`)
	show(t, tab, "#/process/default/hostile")
	until(t, tab, `document.querySelector(".lines")?.textContent.includes("end")`)
	got := call[struct {
		Hacked, Title, Text string
		Links               []string
	}](t, tab, `async () => {
		const lines = document.querySelector(".lines");
		lines.scrollTop = 0;
		lines.dispatchEvent(new Event("scroll"));
		await new Promise((resolve) => setTimeout(resolve, 200));
		return { hacked: String(window.hacked), title: document.title, text: lines.textContent.slice(0, 200), links: [...document.querySelectorAll(".lines a")].map((a) => a.href) };
	}`)
	if got.Hacked != "undefined" || !strings.HasSuffix(got.Title, "– Execwire") || len(got.Links) != 0 ||
		!strings.HasPrefix(got.Text, `<script>window.hacked = 1</script><img src=x onerror="window.hacked = 2">rednolink`) {
		t.Errorf("%+v", got)
	}
}

// The page reads 100 MB as fast as it can, and keeps a bounded part of it.
func TestConsole_Flood(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	begin := filepath.Join(t.TempDir(), "begin")
	c.run("flood", "--", "sh", "-c", `until [ -e "$0" ]; do sleep 0.05; done; seq -f '%090.0f' 1100000; echo the end; exec sleep 1000`, begin)
	tab := open(t, c.link)
	until(t, tab, `document.querySelector("h1")`)
	show(t, tab, "#/process/default/flood")
	until(t, tab, `document.querySelector("[data-lines]")`)
	call[bool](t, tab, `async () => {
		window.longest = 0;
		let last = performance.now();
		const frame = () => { const now = performance.now(); window.longest = Math.max(window.longest, now - last); last = now; requestAnimationFrame(frame) };
		requestAnimationFrame(frame);
		return true;
	}`)
	if err := os.WriteFile(begin, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, tab, `document.querySelector(".lines").textContent.includes("the end")`)
	got := call[struct{ Longest, Lines, Rows float64 }](t, tab, `async () => ({ longest: window.longest, lines: Number(document.querySelector("[data-lines]").dataset.lines), rows: document.querySelectorAll(".row").length })`)
	if got.Rows > 200 {
		t.Errorf("%v rows are in the document", got.Rows)
	}
	t.Logf("the longest frame took %.0f ms; %.0f lines were shown of 1100000", got.Longest, got.Lines)
}

// An upload of 200 MiB goes on after its connections were cut, and a download has the same content.
func TestConsole_Files(t *testing.T) {
	t.Parallel()
	server := start(t, nil, "execwire", "serve", "--until-stdin-closes", "--shutdown-grace-period", "0s", "--listen", "tcp://127.0.0.1:0")
	between := newCutter(t, strings.TrimPrefix(server, "tcp://"))
	link := start(t, nil, "execwire", "console", "--server", "tcp://"+between.Addr().String(), "--no-open")
	here, there := t.TempDir(), t.TempDir()
	content := make([]byte, 200<<20)
	for i := range content {
		content[i] = byte(i >> 10 * 31)
	}
	big := filepath.Join(here, "big file?#%.bin")
	if err := os.WriteFile(big, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(there, "notes.txt"), []byte("<b>hello</b>\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tab := open(t, link)
	until(t, tab, `document.querySelector("h1")`)
	show(t, tab, "#/files"+there)
	until(t, tab, `document.querySelector("button.name")?.textContent === "notes.txt"`)
	call[bool](t, tab, `async () => { document.querySelector("button.name").click(); return true }`)
	until(t, tab, `document.querySelector(".preview pre")?.textContent === "<b>hello</b>\n"`)
	screenshot(t, tab, "console-files")
	if err := chromedp.Do(tab, chromedp.SetUploadFiles("#upload", []string{big}, chromedp.NodeReady)); err != nil {
		t.Fatal(err)
	}
	until(t, tab, `document.querySelector(".transfer progress")?.value > 40e6`)
	between.cut()
	until(t, tab, `/, done/.test(document.querySelector(".transfer")?.textContent)`)
	uploaded, err := os.ReadFile(filepath.Join(there, filepath.Base(big)))
	if err != nil || !bytes.Equal(uploaded, content) {
		t.Fatalf("%d bytes were uploaded: %v", len(uploaded), err)
	}
	until(t, tab, `[...document.querySelectorAll("button.name")].some((b) => b.textContent === "big file?#%.bin")`)
	got := call[string](t, tab, `async (path) => {
		const response = await fetch("/v1/files" + path.split("/").map(encodeURIComponent).join("/"));
		const digest = await crypto.subtle.digest("SHA-256", await response.arrayBuffer());
		return [...new Uint8Array(digest)].map((b) => b.toString(16).padStart(2, "0")).join("");
	}`, filepath.Join(there, filepath.Base(big)))
	if want := fmt.Sprintf("%x", sha256.Sum256(content)); got != want {
		t.Errorf("the download has another content: %s", got)
	}
}

// axe-core finds no violation of WCAG 2.1 AA in any view, in light and dark.
func TestConsole_IsAccessible(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"light", "dark"} {
		t.Run("server, "+scheme, func(t *testing.T) {
			t.Parallel()
			c := newConsole(t, "--audit-file", filepath.Join(t.TempDir(), "audit.log"))
			c.run("build", "--", "sh", "-c", `printf "\033[32mok\033[0m https://example.org/ \033[33mwarning\033[0m\n"; echo error >&2; exec sleep 1000`)
			c.run("shell", "-t", "--env", "PS1=$ ", "--", "sh")
			c.run("failed", "--", "false")
			cast := write(t, filepath.Join(t.TempDir(), "a.cast"), "{\"version\": 2, \"width\": 80, \"height\": 24}\n[0, \"o\", \"hello\"]\n")
			tab := open(t, c.link)
			until(t, tab, `document.querySelectorAll("#processes tbody tr").length === 3`)
			checkAccessible(t, tab, scheme, map[string]string{
				"#/processes":                          `document.querySelectorAll("#processes tbody tr").length === 3`,
				"#/recordings/" + url.PathEscape(cast): `document.querySelector(".ap-player")`,
				"#/process/default/build":              `document.querySelector(".lines")?.textContent.includes("error")`,
				"#/process/default/build/usage":        `document.querySelectorAll(".plot polyline").length === 4`,
				"#/process/default/shell":              terminalLine(0) + ` === "$"`,
				"#/start":                              `document.querySelector("input[name=command]")`,
				"#/files/etc":                          `document.querySelector("button.name")`,
				"#/server":                             `document.querySelectorAll(".plot polyline").length >= 6`,
				"#/audit":                              `document.querySelectorAll("#audit tbody tr").length > 3`,
			})
		})
		t.Run("hub, "+scheme, func(t *testing.T) {
			t.Parallel()
			hub, tokens := newHubConsole(t, "--console-oidc-issuer", "https://accounts.example.org", "--console-oidc-client-id", "console")
			tab := open(t, hub+"/console/")
			until(t, tab, `document.querySelector("input[name=token]")`)
			checkAccessible(t, tab, scheme, map[string]string{"#": `document.querySelector("#provider")`})
			signIn(t, tab, tokens["ann"])
			until(t, tab, `document.querySelector("#executors tbody tr")`)
			checkAccessible(t, tab, scheme, map[string]string{"#": `document.querySelector("#executors tbody tr")`})
		})
	}
}

// checkAccessible checks places of the page in a color scheme. They are ready when an expression
// is true.
func checkAccessible(t *testing.T, tab context.Context, scheme string, places map[string]string) {
	t.Helper()
	axe, err := os.ReadFile(filepath.Join(root, "web/node_modules/axe-core/axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Run(tab, chromedp.Evaluate[any](string(axe)+";null")); err != nil {
		t.Fatal(err)
	}
	err = chromedp.Do(tab, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	}))
	if err != nil {
		t.Fatal(err)
	}
	for place, ready := range places {
		show(t, tab, place)
		until(t, tab, ready)
		violations := call[[]string](t, tab, `async () => {
			const { violations } = await axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"] });
			return violations.map((v) => v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + " " + n.failureSummary).join(" | "));
		}`)
		for _, v := range violations {
			t.Errorf("%s, %s: %s", place, scheme, v)
		}
	}
}

// cutter passes connections to an address until it cuts them.
type cutter struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn // guarded by mu
}

func newCutter(t *testing.T, address string) *cutter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{Listener: listener}
	t.Cleanup(func() {
		_ = listener.Close()
		c.cut()
	})
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", address)
			if err != nil {
				_ = from.Close()
				continue
			}
			c.mu.Lock()
			c.conns = append(c.conns, from, to)
			c.mu.Unlock()
			pass := func(dst, src net.Conn) {
				_, _ = io.Copy(dst, src)
				_ = dst.Close()
			}
			go pass(from, to)
			go pass(to, from)
		}
	}()
	return c
}

// cut ends all connections; later ones pass.
func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// newHubConsole starts a hub with a table, its console, and an executor.
func newHubConsole(t *testing.T, arguments ...string) (hub string, tokens map[string]string) {
	t.Helper()
	dir := t.TempDir()
	tokens = map[string]string{"ann": "", "bob": "", "fleet": ""}
	table := ""
	for name := range tokens {
		tokens[name] = name + "-has-a-token-that-is-long-enough-to-be-one"
		write(t, filepath.Join(dir, name), tokens[name])
		table += fmt.Sprintf("[[principal]]\nname = %q\ntoken_file = %q\n", name, filepath.Join(dir, name))
		table += map[string]string{"ann": "oidc_identities = [\"email:ann@example.org\"]\nconnect_to_executors = [\"build-*\"]\n", "bob": "connect_to_executors = [\"other\"]\n", "fleet": "act_as_executors = [\"*\"]\n"}[name]
	}
	hub = start(t, nil, "execwire-hub", append(arguments, "--listen", "http://127.0.0.1:0", "--console", "--principals-file", write(t, filepath.Join(dir, "principals.toml"), table))...)
	launch(t, exec.Command(filepath.Join(root, "bin/execwire"), "serve", "--until-stdin-closes", "--shutdown-grace-period", "0s", "--remote", hub,
		"--executor-id", "build-1", "--executor-labels", "arch=amd64", "--remote-token-file", filepath.Join(dir, "fleet")))
	deadline := time.Now().Add(patience)
	for !strings.Contains(execwire(t, "executors", "--hub", hub, "--token-file", filepath.Join(dir, "ann")), "build-1\tconnected") {
		if time.Now().After(deadline) {
			t.Fatal("the executor does not connect")
		}
		time.Sleep(50 * time.Millisecond)
	}
	return hub, tokens
}

// signIn types a token into the form of a hub's console.
func signIn(t *testing.T, tab context.Context, token string) {
	t.Helper()
	until(t, tab, `document.querySelector("input[name=token]") && !document.querySelector(".form button").disabled`)
	call[bool](t, tab, `async () => { document.querySelector("input[name=token]").value = ""; document.querySelector("input[name=token]").focus(); return true }`)
	press(t, tab, token+"\r")
}

// Principals of a hub sign in by their tokens, and use the executors that they may connect to.
func TestConsole_OfAHub(t *testing.T) {
	t.Parallel()
	hub, tokens := newHubConsole(t)
	tab := open(t, hub+"/console/")
	signIn(t, tab, "wrong")
	until(t, tab, `document.querySelector(".problem")?.textContent === "invalid bearer token"`)
	signIn(t, tab, tokens["ann"])
	until(t, tab, `/build-1connectedarch=amd64/.test(document.querySelector("#executors tbody tr")?.textContent)`)
	screenshot(t, tab, "console-hub")
	if kept := call[string](t, tab, `async () => location.href + document.documentElement.outerHTML + JSON.stringify(localStorage) + document.cookie`); strings.Contains(kept, tokens["ann"]) {
		t.Errorf("the page keeps the token: %s", kept)
	}
	call[bool](t, tab, `async () => { setTimeout(() => document.querySelector("#executors a").click()); return true }`)
	waitVisible(t, tab, "#processes")
	until(t, tab, `document.querySelector("#processes") && /build-1/.test(document.querySelector(".host")?.textContent)`)
	// A terminal, which streams through the hub.
	show(t, tab, "#/start")
	until(t, tab, `document.querySelector("input[name=command]")`)
	call[bool](t, tab, `async () => { document.querySelector("input[name=id]").value = "shell"; document.querySelector("input[name=command]").focus(); return true }`)
	press(t, tab, "PS1='$ ' exec sh\r")
	until(t, tab, terminalLine(0)+` === "$"`)
	press(t, tab, "echo $((40+2))\r")
	until(t, tab, terminalLine(1)+` === "42" && `+terminalLine(2)+` === "$"`)
	// Files go through the hub, too.
	there := t.TempDir()
	write(t, filepath.Join(there, "notes.txt"), "hello")
	big := write(t, filepath.Join(t.TempDir(), "big.bin"), strings.Repeat("0123456789abcdef", 1<<20))
	show(t, tab, "#/files"+there)
	until(t, tab, `document.querySelector("button.name")?.textContent === "notes.txt"`)
	if err := chromedp.Do(tab, chromedp.SetUploadFiles("#upload", []string{big}, chromedp.NodeReady)); err != nil {
		t.Fatal(err)
	}
	until(t, tab, `/, done/.test(document.querySelector(".transfer")?.textContent)`)
	if content, err := os.ReadFile(filepath.Join(there, "big.bin")); err != nil || len(content) != 16<<20 {
		t.Errorf("%d bytes were uploaded: %v", len(content), err)
	}
	size := call[int](t, tab, `async (path) => (await (await fetch("executor/build-1/v1/files" + path)).arrayBuffer()).byteLength`, filepath.Join(there, "big.bin"))
	if size != 16<<20 {
		t.Errorf("a download has %d bytes", size)
	}
	// Another principal has other executors, and cannot use this one by its address.
	other := open(t, hub+"/console/?executor=build-1")
	signIn(t, other, tokens["bob"])
	until(t, other, `/cannot be reached/.test(document.querySelector(".note")?.textContent)`)
	if err := chromedp.Do(other, chromedp.Navigate(hub+"/console/")); err != nil {
		t.Fatal(err)
	}
	until(t, other, `/No executor that you may use/.test(document.querySelector(".note")?.textContent)`)
	// Signing out ends the session.
	call[bool](t, tab, `async () => { [...document.querySelectorAll("button")].find((b) => b.textContent === "Sign out").click(); return true }`)
	waitVisible(t, tab, "input[name=token]")
	if status := call[int](t, tab, `async () => (await fetch("/console/executors")).status`); status != 401 {
		t.Errorf("after signing out executors are answered by %d", status)
	}
}
