package operations

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// top refreshes a screen in place, adapts to its size, and leaves the terminal as it was.
func TestTop_AtATerminal_RefreshesInPlace(t *testing.T) {
	server := harness.Serve(t)
	url := server.URLs[harness.UnixTransport]
	if got := harness.Run(t, nil, "run", "--server", url, "-d", "--name", "first", "--", "/bin/sleep", "secret-argument", "infinity"); got.Code != 0 {
		t.Fatalf("the start is %+v", got)
	}
	start := func(name string) {
		t.Helper()
		if got := harness.Run(t, nil, "run", "--server", url, "-d", "--name", name, "--", "/bin/sh", "-c", "echo 12345; exec sleep infinity"); got.Code != 0 {
			t.Fatalf("the start is %+v", got)
		}
	}
	start("second")
	row := func(name string) *regexp.Regexp {
		return regexp.MustCompile(`(?m)^\d+ +\d+\.\d +\S+ \S*B +\S+ \S*B +6 B +running +\S+ +default +` + name + ` +(sh|sleep)$`)
	}
	pane := harness.NewPane(t, 140, 20)
	for _, key := range []string{"q", "C-c"} {
		pane.Enter(harness.Execwire + " top -d 100ms --server " + url + "; echo ended:$?")
		pane.Await("top shows the processes", func(screen string) bool {
			return row("second").MatchString(screen) && strings.Contains(screen, "server: ") && !strings.Contains(screen, "ended:")
		})
		if key == "q" {
			start("third")
			pane.Await("top refreshes the screen", func(screen string) bool {
				return row("third").MatchString(screen) && strings.Count(screen, "server: ") == 1 && !strings.Contains(screen, "secret")
			})
			pane.Tmux("resize-window", "-x", "60", "-y", "10")
			pane.Await("top fits the smaller screen", func(screen string) bool {
				return regexp.MustCompile(`(?m)^PID +CPU% +MEMORY`).MatchString(screen) && !strings.Contains(screen, "PROGRAM")
			})
			pane.Tmux("resize-window", "-x", "140", "-y", "20")
		}
		pane.Key(key)
		pane.Await("top ends", func(screen string) bool {
			return strings.Contains(screen, "ended:0") && !strings.Contains(screen, "server: ")
		})
		pane.Enter("clear")
		pane.Await("the screen is clear", func(screen string) bool { return !strings.Contains(screen, "ended:0") })
	}
}

// Each refresh is an object, and debug gives the state and each kind of profile, without
// anything of a command. One profile of a kind is taken at a time.
func TestOperate_JSONAndProfiles(t *testing.T) {
	server := harness.Serve(t)
	url := server.URLs[harness.UnixTransport]
	const secret = "secret-word"
	// A program whose name is longer than what is shown, which ends between two characters.
	program := filepath.Join(harness.ShortDir(t), strings.Repeat("€", 22))
	if err := os.Symlink("/bin/sh", program); err != nil {
		t.Fatal(err)
	}
	if got := harness.Run(t, nil, "run", "--server", url, "-d", "--name", "p", "-e", "A="+secret, "--", program, "-c", "echo "+secret+"; exec sleep infinity", secret); got.Code != 0 {
		t.Fatalf("the start is %+v", got)
	}
	got := harness.Run(t, nil, "top", "--server", url, "--json", "-n", "2", "-d", "100ms")
	lines := strings.Split(strings.TrimSpace(got.Stdout), "\n")
	if got.Code != 0 || len(lines) != 2 {
		t.Fatalf("top is %+v", got)
	}
	for _, line := range lines {
		var shown struct {
			Server    struct{ Goroutines int }
			Sessions  []struct{ Session string }
			Processes []struct {
				ID, State, Program string
				PID                int
				Resident           int64 `json:"resident_bytes"`
			}
		}
		if err := json.Unmarshal([]byte(line), &shown); err != nil || shown.Server.Goroutines == 0 || len(shown.Sessions) != 1 || len(shown.Processes) != 1 ||
			shown.Processes[0].ID != "p" || shown.Processes[0].State != "running" || shown.Processes[0].Program != strings.Repeat("€", 21) || shown.Processes[0].Resident == 0 {
			t.Errorf("an object of top is %s (%v)", line, err)
		}
	}
	all := got.Stdout
	dir := t.TempDir()
	for kind, begins := range map[string]string{"cpu": "\x1f\x8b", "heap": "\x1f\x8b", "goroutine": "\x1f\x8b", "mutex": "\x1f\x8b",
		"trace": "go 1.", "goroutines": "goroutine ", "state": "{"} {
		file := filepath.Join(dir, kind)
		if got := harness.Run(t, nil, "debug", "--server", url, "-d", "100ms", "-o", file, kind); got.Code != 0 {
			t.Errorf("debug %s is %+v", kind, got)
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(content), begins) {
			t.Errorf("debug %s has %d bytes: %.20q (%v)", kind, len(content), content, err)
		}
		if begins == "\x1f\x8b" {
			unzipped, err := gzip.NewReader(bytes.NewReader(content))
			if err != nil {
				t.Errorf("debug %s: %v", kind, err)
				continue
			}
			content, _ = io.ReadAll(unzipped)
		}
		all += string(content)
	}
	if strings.Contains(all, secret) {
		t.Error("a profile or the state has something of a command")
	}
	heap := filepath.Join(dir, "heap")
	before, _ := os.ReadFile(heap)
	for _, wrong := range [][]string{{"debug"}, {"debug", "nothing"}, {"debug", "-d", "1h", "-o", heap, "cpu"}, {"top", "-d", "1ms"}} {
		if got := harness.Run(t, nil, append(wrong, "--server", url)...); got.Code == 0 || !strings.HasPrefix(got.Stderr, "execwire: ") {
			t.Errorf("%q is %+v", wrong, got)
		}
	}
	if after, err := os.ReadFile(heap); err != nil || len(after) == 0 || !bytes.Equal(after, before) {
		t.Errorf("a profile that failed has changed the file: %d bytes, %v", len(after), err)
	}

	c, err := client.Dial(harness.Context(t), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ended := make(chan error, 2)
	for range 2 {
		stream, err := c.Admin().TakeProfile(harness.Context(t), &execwirev1.TakeProfileRequest{Kind: execwirev1.ProfileKind_PROFILE_KIND_MUTEX, Duration: durationpb.New(5 * time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := stream.Recv()
			ended <- err
		}()
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "is being taken") {
		t.Errorf("one of two profiles ends with %v", err)
	}
}
