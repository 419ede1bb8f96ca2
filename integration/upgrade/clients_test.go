package upgrade

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testcert"
	"github.com/execwire/execwire/internal/testport"
)

// steps is a command whose steps begin when a test lets them.
type steps struct {
	t       *testing.T
	dir     string
	command *harness.Command
	output  harness.LockedBuffer
	done    int
}

// startSteps runs a process of n steps by a command line, which ends in the arguments of run.
func startSteps(t *testing.T, n int, run ...string) *steps {
	t.Helper()
	s := &steps{t: t, dir: harness.ShortDir(t)}
	script := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do i=$((i+1)); until [ -e "$0/$i" ]; do sleep 0.02; done; echo step $i; echo warning $i >&2; done; exit 4`, n)
	s.command = harness.NewCommand(append(run, "--", "sh", "-c", script, s.dir)...)
	s.command.Stdout = &s.output
	s.command.Launch(t)
	return s
}

// proceed lets the next step begin, and does not wait for it.
func (s *steps) proceed() {
	s.t.Helper()
	s.done++
	if err := os.WriteFile(filepath.Join(s.dir, fmt.Sprint(s.done)), nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// await waits until the output of all steps has arrived.
func (s *steps) await() {
	s.t.Helper()
	harness.Eventually(s.t, "a step ends", func() bool {
		return strings.Count(s.output.String(), "\n") == s.done && strings.Count(s.command.Errors.String(), "warning") == s.done
	})
}

// finish checks the end of the command and all of its output.
func (s *steps) finish() {
	s.t.Helper()
	if code := s.command.Await(s.t); code != 4 {
		s.t.Errorf("the command exits with %d, want 4: %s", code, s.command.Errors.String())
	}
	var stdout, stderr string
	for i := range s.done {
		stdout += fmt.Sprintf("step %d\n", i+1)
		stderr += fmt.Sprintf("warning %d\n", i+1)
	}
	if got := s.output.String(); got != stdout {
		s.t.Errorf("stdout is %q, want %q", got, stdout)
	}
	var warnings strings.Builder
	for line := range strings.Lines(s.command.Errors.String()) { // beside those of execwire itself
		if strings.HasPrefix(line, "warning") {
			warnings.WriteString(line)
		}
	}
	if got := warnings.String(); got != stderr {
		s.t.Errorf("stderr is %q, want %q", got, stderr)
	}
}

// An executor behind a hub is upgraded during a build there. It registers again with the
// same id, and each step arrives once.
func TestUpgrade_Executor_BuildGoesOn(t *testing.T) {
	harness.Waits(t)
	f := harness.NewFleet(t)
	n := upgrades()
	build := startSteps(t, n+1, f.Through("--id", "build")...)
	build.proceed()
	build.await()
	for i := range n {
		build.proceed()
		f.Executor.Send(t, unix.SIGUSR2)
		harness.Eventually(t, "the executor is upgraded", func() bool {
			return strings.Count(f.Executor.Errors.String(), "msg=upgraded") == i+1
		})
		build.await()
	}
	build.finish()
}

// A client with a certificate goes on after upgrades, by TLS.
func TestUpgrade_TLS(t *testing.T) {
	harness.Waits(t)
	dir, authority := harness.ShortDir(t), testcert.NewAuthority(t)
	ca := testcert.WriteFile(t, filepath.Join(dir, "ca.pem"), authority.PEM)
	certificate, key := authority.Issue("server").Write(t, dir, "server")
	principals := testcert.WriteFile(t, filepath.Join(dir, "principals.toml"), []byte("[[principal]]\nname = 'ann'\nallow = ['all', 'admin']\ncertificates = ['cn:ann']\n"))
	c := harness.NewCommand("serve", "--listen", fmt.Sprintf("tls://127.0.0.1:%d", testport.Reserve(t)),
		"--tls-cert", certificate, "--tls-key", key, "--tls-ca", ca, "--principals-file", principals)
	url := c.Listen(t, 1)[0]
	certificate, key = authority.Issue("ann").Write(t, dir, "ann")
	as := func(name string, args ...string) []string {
		return append([]string{name, "--server", url, "--tls-ca", ca, "--tls-cert", certificate, "--tls-key", key}, args...)
	}
	running := startSteps(t, 3, as("run", "--id", "steps")...)
	for i := range 3 {
		running.proceed()
		if i > 0 {
			if result := harness.Run(t, nil, as("upgrade")...); result.Code != 0 {
				t.Fatalf("upgrade: %+v", result)
			}
		}
		running.await()
	}
	running.finish()
}

// A full-screen program shows the same after upgrades as one that runs here.
func TestUpgrade_FullScreen(t *testing.T) {
	harness.Waits(t)
	s := serve(t)
	var text strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&text, "%d: %s\n", i, strings.Repeat("ä-", i%30))
	}
	file := filepath.Join(harness.ShortDir(t), "text")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	here, there := harness.NewPane(t, 80, 24), harness.NewPane(t, 80, 24)
	here.Enter("LESSHISTFILE=- LC_ALL=C.UTF-8 less " + file)
	there.Enter(strings.Join(append([]string{harness.Execwire}, s.Through(harness.TCPTransport, "-ti", "--id", "reader", "-e", "LESSHISTFILE=-", "-e", "LC_ALL=C.UTF-8", "-e", "TERM=screen", "--", "less", file)...), " "))
	for i := range upgrades() + 1 {
		top := fmt.Sprintf("%d:", i*23)
		for _, pane := range []*harness.Pane{here, there} {
			pane.Await("the next page", func(screen string) bool { return strings.HasPrefix(screen, top) })
		}
		want := here.Tmux("capture-pane", "-p", "-e")
		there.Await("what is shown here", func(string) bool { return there.Tmux("capture-pane", "-p", "-e") == want })
		if i < upgrades() {
			s.upgrade()
		}
		screen := harness.Run(t, nil, s.Remotely(harness.TCPTransport, "screen", "reader")...)
		if want := here.Tmux("capture-pane", "-p"); strings.TrimSpace(screen.Stdout) != strings.TrimSpace(want) {
			t.Errorf("the server's screen is %+v, want %s", screen, want)
		}
		for _, pane := range []*harness.Pane{here, there} {
			pane.Key("Space")
		}
	}
	there.Key("q")
	there.AwaitLine("local[0]$")
}

// An editor writes what is typed before, during and after upgrades, once and in order, and shows the same
// as one that runs here.
func TestUpgrade_Editor(t *testing.T) {
	harness.Waits(t)
	s := serve(t)
	here, there := harness.NewPane(t, 80, 24), harness.NewPane(t, 80, 24)
	const vi, name = "LC_ALL=C.UTF-8 vi -u NONE -n ", "text"
	dirs := []string{harness.ShortDir(t), harness.ShortDir(t)}
	here.Enter("cd " + dirs[0] + "; " + vi + name)
	there.Enter(strings.Join(append([]string{harness.Execwire}, s.Through(harness.TCPTransport, "-ti", "--cwd", dirs[1], "-e", "TERM=screen", "--", "sh", "-c", "'"+vi+name+"'")...), " "))
	panes := []*harness.Pane{here, there}
	for _, pane := range panes {
		pane.Await("the editor", func(screen string) bool { return strings.Contains(screen, "~") })
		pane.Key("i")
	}
	want := ""
	for i := range upgrades() {
		upgraded := make(chan struct{})
		go func() {
			defer close(upgraded)
			s.upgrade()
		}()
		for part := range 5 { // some of it while there is no connection
			line := fmt.Sprintf("line %d of %d: ä", part, i)
			want += line + "\n"
			for _, pane := range panes {
				pane.Enter(line)
			}
		}
		<-upgraded
		for _, pane := range panes {
			pane.Await("the last line", func(screen string) bool { return strings.Contains(screen, fmt.Sprintf("line 4 of %d: ä", i)) })
		}
		there.Await("what is shown here", func(string) bool {
			return there.Tmux("capture-pane", "-p", "-e") == here.Tmux("capture-pane", "-p", "-e")
		})
	}
	for i, pane := range panes {
		pane.Key("Escape")
		pane.Enter(":x")
		pane.AwaitLine("local[0]$")
		if got, err := os.ReadFile(filepath.Join(dirs[i], name)); err != nil || string(got) != want+"\n" {
			t.Errorf("the editor has written %q, %v, want %q", got, err, want+"\n")
		}
	}
}

// An upload of what cannot be read again goes on with what was received before each upgrade.
func TestUpgrade_Upload(t *testing.T) {
	harness.Waits(t)
	s := serve(t)
	to := filepath.Join(harness.ShortDir(t), "uploaded")
	upload := harness.NewCommand(s.Remotely(harness.TCPTransport, "cp", "-", ":"+to)...)
	input, err := upload.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	upload.Launch(t)
	size := int64(9 << 20) // more than cp keeps to send it again
	if harness.Soak() {
		size = 1 << 20
	}
	random, sum := rand.NewChaCha8([32]byte{1}), sha256.New()
	part := func() {
		t.Helper()
		if _, err := io.CopyN(io.MultiWriter(input, sum), random, size); err != nil {
			t.Fatal(err)
		}
	}
	for range upgrades() {
		part()
		s.upgrade()
	}
	part()
	_ = input.Close()
	if code := upload.Await(t); code != 0 {
		t.Fatalf("cp exits with %d: %s", code, upload.Errors.String())
	}
	uploaded, err := os.ReadFile(to)
	if got := sha256.Sum256(uploaded); err != nil || !bytes.Equal(got[:], sum.Sum(nil)) {
		t.Errorf("%d bytes with another content were uploaded: %v", len(uploaded), err)
	}
	if left, err := os.ReadDir(filepath.Dir(to)); err != nil || len(left) != 1 {
		t.Errorf("the directory has %v: %v", left, err)
	}
}
