package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/execwire/execwire/internal/testcert"
)

const (
	goodToken  = "good-token-0123456789-0123456789-0123456789"
	viewToken  = "view-token-0123456789-0123456789-0123456789"
	wrongToken = "wrong-token-0123456789-0123456789-012345678"
)

// secureServer is a server with a principals table and TLS.
type secureServer struct {
	t            *testing.T
	dir          string
	socket, tls  string // URLs
	ca           string
	good, view   string // token files
	wrong        string
	binary       string
	command      *exec.Cmd
	errOut       bytes.Buffer
	certificates *testcert.Authority
}

// nobody is an unprivileged user.
const nobody = 65534

// newSecureServer serves as uid, with all files in a directory of that user.
func newSecureServer(t *testing.T, uid int) *secureServer {
	t.Helper()
	s := &secureServer{t: t, dir: publicDir(t), certificates: testcert.NewAuthority(t)}
	file := func(name, content string) string {
		return testcert.WriteFile(t, filepath.Join(s.dir, name), []byte(content))
	}
	s.good, s.view, s.wrong = file("good", goodToken+"\n"), file("view", viewToken), file("wrong", wrongToken)
	s.ca = file("ca.pem", string(s.certificates.PEM))
	certificate, key := s.certificates.Issue("server").Write(t, s.dir, "server")
	table := file("principals.toml", fmt.Sprintf(
		"[[principal]]\nname='good'\ntoken_file=%q\nallow=['all']\n[[principal]]\nname='viewer'\ntoken_file=%q\nallow=['view']\n", s.good, s.view))
	s.binary = copyBinary(t, s.dir)
	chown(t, s.dir, uid)
	s.command = s.commandAs(uid, "serve", "--log-level", "debug", "--listen", "unix://"+s.dir+"/s", "--listen", "grpcs://127.0.0.1:0")
	s.command.Env = append(s.command.Env, "EXECWIRE_PRINCIPALS_FILE="+table, "EXECWIRE_TLS_CERT="+certificate, "EXECWIRE_TLS_KEY="+key)
	s.command.Stderr = &s.errOut
	pipe, err := s.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	stdout := bufio.NewReader(pipe)
	t.Cleanup(func() { s.stop(stdout) })
	for _, url := range []*string{&s.socket, &s.tls} {
		line, err := stdout.ReadString('\n')
		if err != nil {
			t.Fatalf("failed to read the URL of a listener: %v: %s", err, &s.errOut)
		}
		*url = strings.TrimSuffix(line, "\n")
	}
	return s
}

func (s *secureServer) stop(stdout io.Reader) {
	if s.command.ProcessState != nil {
		return
	}
	_ = s.command.Process.Signal(syscall.SIGTERM)
	_, _ = io.ReadAll(stdout)
	if err := s.command.Wait(); err != nil {
		s.t.Errorf("the server ended with %v: %s", err, &s.errOut)
	}
}

// commandAs returns execwire run by a user.
func (s *secureServer) commandAs(uid int, arguments ...string) *exec.Cmd {
	c := exec.Command(s.binary, arguments...)
	c.Dir = "/"
	c.Env = []string{runCommandVariable + "=1", "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/", "GORACE=atexit_sleep_ms=0"}
	if uid != os.Getuid() {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	return c
}

// publicDir returns a directory that every user can enter, unlike t.TempDir.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "execwire-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// copyBinary copies this program to where every user can run it.
func copyBinary(t *testing.T, dir string) string {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "execwire")
	syscall.ForkLock.RLock() // a concurrently forked child would have the file open for writing, and executing it would fail
	err = os.WriteFile(path, self, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// chown changes the owner of a directory and its content.
func chown(t *testing.T, dir string, uid int) {
	t.Helper()
	if uid == os.Getuid() {
		return
	}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, uid, uid)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCommands_SecureServer(t *testing.T) {
	s := newSecureServer(t, os.Getuid())
	port := s.tls[strings.LastIndexByte(s.tls, ':'):]
	tls := []string{"--server", s.tls, "--tls-ca", s.ca}
	other := testcert.WriteFile(t, filepath.Join(s.dir, "other.pem"), testcert.NewAuthority(t).PEM)
	open := testcert.WriteFile(t, filepath.Join(s.dir, "open"), []byte(goodToken))
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		flags    []string
		code     int
		wantText []string
	}{
		"token through TLS":   {append(tls, "--token-file", s.good), 0, nil},
		"token on a socket":   {[]string{"--server", s.socket, "--token-file", s.good}, 0, nil},
		"no token":            {tls, 125, []string{"is not known here", "--token-file", "--tls-cert"}},
		"wrong token":         {append(tls, "--token-file", s.wrong), 125, []string{"is not known here", "--token-file"}},
		"not allowed":         {append(tls, "--token-file", s.view), 125, []string{"viewer may not do this", `add "start"`}},
		"no such token":       {append(tls, "--token-file", s.dir+"/none"), 125, []string{s.dir + "/none", "no such file"}},
		"open token":          {append(tls, "--token-file", open), 125, []string{"chmod 600 " + open}},
		"no authority":        {[]string{"--server", s.tls}, 125, []string{"cannot reach " + s.tls, "unknown authority", "--tls-ca FILE"}},
		"other authority":     {[]string{"--server", s.tls, "--tls-ca", other}, 125, []string{"unknown authority"}},
		"plain text":          {[]string{"--server", "grpc://127.0.0.1" + port}, 125, []string{"tls://"}},
		"token, plain text":   {[]string{"--server", "grpc://192.0.2.1:1", "--token-file", s.good}, 125, []string{"plain text", "tls://"}},
		"key, no certificate": {append(tls, "--tls-key", s.good), 125, []string{"needed together"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := runCommand(t, s.commandAs(os.Getuid(), append(append([]string{"run"}, tc.flags...), "true")...))
			if got.code != tc.code || (got.errOut == "") != (tc.code == 0) {
				t.Errorf("exit code %d, want %d; stderr %q", got.code, tc.code, got.errOut)
			}
			for _, text := range tc.wantText {
				if !strings.Contains(got.errOut, text) {
					t.Errorf("stderr %q does not contain %q", got.errOut, text)
				}
			}
		})
	}
	byVariables := s.commandAs(os.Getuid(), "run", "true")
	byVariables.Env = append(byVariables.Env, "EXECWIRE_SERVER="+s.tls, "EXECWIRE_TLS_CA="+s.ca, "EXECWIRE_TOKEN_FILE="+s.good)
	if got := runCommand(t, byVariables); got.code != 0 {
		t.Errorf("by variables: %+v", got)
	}
}

// run runs a shell command on the server as uid, which is permitted.
func (s *secureServer) run(uid int, flags []string, script string) string {
	s.t.Helper()
	arguments := append([]string{"run", "--server", s.socket, "--token-file", s.good, "--env-inherit", "all"}, flags...)
	got := runCommand(s.t, s.commandAs(uid, append(arguments, "--", "/bin/sh", "-c", script)...))
	if got.code != 0 {
		s.t.Fatalf("%s: exit code %d, %q, %q", script, got.code, got.out, got.errOut)
	}
	return got.out
}

// Secrets are in files, so processes cannot see them in any environment or argument, not even as root.
func TestSecrets_AreInNoEnvironmentArgumentOrLog(t *testing.T) {
	s := newSecureServer(t, os.Getuid())
	for _, token := range []string{s.wrong, s.view} {
		if got := runCommand(t, s.commandAs(os.Getuid(), "run", "--server", s.socket, "--token-file", token, "true")); got.code != 125 {
			t.Errorf("with %s: %+v", token, got)
		}
	}
	seen := s.run(os.Getuid(), nil, `env; tr '\0' '\n' </proc/$PPID/cmdline; tr '\0' '\n' </proc/$PPID/environ 2>/dev/null; true`)
	if !strings.Contains(seen, "PATH=") || !strings.Contains(seen, "--log-level") {
		t.Fatalf("the child saw %q", seen)
	}
	if err := s.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.command.Wait(); err != nil {
		t.Error(err)
	}
	log := s.errOut.String()
	for _, text := range []string{"principal=good", "principal=viewer", "no principal has it"} {
		if !strings.Contains(log, text) {
			t.Errorf("the log does not contain %q: %s", text, log)
		}
	}
	for _, token := range []string{goodToken, viewToken, wrongToken} {
		if strings.Contains(seen, token[:20]) || strings.Contains(log, token[:20]) {
			t.Errorf("%s is in what a child sees or in the log", token)
		}
	}
}

// traceVariable in the environment makes the test binary trace a process.
const traceVariable = "EXECWIRE_TEST_TRACE"

// trace attaches to a process, prints the result, and detaches.
func trace(pid string) {
	runtime.LockOSThread() // the tracer is a thread
	n, err := strconv.Atoi(pid)
	if err == nil {
		err = syscall.PtraceAttach(n)
	}
	if err == nil {
		_, _ = syscall.Wait4(n, nil, syscall.WALL, nil)
		err = syscall.PtraceDetach(n)
	}
	fmt.Println("trace:", err)
}

// Processes run as the user of the server; the kernel must protect its memory from
// them.
func TestProcesses_CannotReadServerMemory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("run the tests as root: only root can run a server as another user")
	}
	s := newSecureServer(t, nobody)
	if got := s.run(nobody, nil, "id -u"); got != fmt.Sprintln(nobody) {
		t.Fatalf("the child is %q", got)
	}
	look := func(pid string) string {
		return s.run(nobody, []string{"--env", runCommandVariable + "=", "--env", "GORACE=atexit_sleep_ms=0"}, strings.ReplaceAll(`sleep 1000 >/dev/null 2>&1 & other=$!
for file in environ mem maps; do if (: <"/proc/PID/$file") 2>/dev/null; then echo "$file: open"; else echo "$file: refused"; fi; done
`+traceVariable+`=PID `+s.binary+`; kill -KILL $other`, "PID", pid))
	}
	// The control: without protection there could be another reason for the denial.
	if got, want := look("$other"), "environ: open\nmem: open\nmaps: open\ntrace: <nil>\n"; got != want {
		t.Skipf("a process like any other is not open here: %q", got)
	}
	for _, pid := range []string{"$PPID", strconv.Itoa(s.command.Process.Pid)} { // the server, its guardian
		if got, want := look(pid), "environ: refused\nmem: refused\nmaps: refused\ntrace: operation not permitted\n"; got != want {
			t.Errorf("of %s a child gets %q, want %q", pid, got, want)
		}
	}
	// The server must still have access to itself.
	if got := s.run(nobody, []string{"-t"}, "test -t 0 && test -t 1 && echo terminal"); got != "terminal\r\n" {
		t.Errorf("with a terminal: %q", got)
	}
	if got := s.run(nobody, nil, "ls /proc/self/fd | wc -l; cat /proc/self/cgroup >/dev/null && echo read"); !strings.HasSuffix(got, "read\n") {
		t.Errorf("a child's view of itself is %q", got)
	}
}
