package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/testproc"
	"github.com/execwire/execwire/internal/testrace"
)

func init() {
	testproc.Register("sandbox-attempt", makeAttempt)
	testproc.Register("sandbox-server", serveAttempts)
}

func attempts() map[string]attempt {
	all := maps.Clone(fileAttempts)
	maps.Copy(all, processAttempts)
	maps.Copy(all, networkAttempts)
	maps.Copy(all, kernelAttempts)
	return all
}

// makeAttempt NAME STAGE makes an attempt and prints its error, if any.
func makeAttempt(args []string) int {
	var s stage
	if err := json.Unmarshal([]byte(args[1]), &s); err != nil {
		return 1
	}
	if err := attempts()[args[0]].make(s); err != nil {
		fmt.Print(err)
		return 0
	}
	fmt.Print("it worked")
	return 0
}

// outcome is the result of one attempt.
type outcome struct{ Plain, Confined string }

// serveAttempts BACKEND DIR SETUID is a server that makes each attempt without a
// sandbox and then with a backend, and prints the results.
func serveAttempts(args []string) int {
	backend, _ := strconv.Atoi(args[0])
	server, err := newAttemptServer(Backend(backend), args[1], args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer server.removeQueue()
	outcomes := map[string]outcome{}
	for name, attempt := range attempts() {
		if attempt.root && os.Geteuid() != 0 || attempt.ordinary && os.Geteuid() == 0 {
			continue
		}
		plain, plainErr := server.run(name, nil)
		confined, confinedErr := server.run(name, server.sandboxes)
		if err := errors.Join(plainErr, confinedErr); err != nil {
			fmt.Fprintln(os.Stderr, name, err)
			return 1
		}
		outcomes[name] = outcome{Plain: plain, Confined: confined}
	}
	if json.NewEncoder(os.Stdout).Encode(outcomes) != nil {
		return 1
	}
	return 0
}

// attemptServer has the targets of the attempts.
type attemptServer struct {
	stage     stage
	sandboxes *Sandboxes
	rounds    int
	open      []any // listeners, which would be closed if nobody had them
}

// heldSecret is in the memory of the server.
var heldSecret = []byte(secret)

func newAttemptServer(backend Backend, dir, setuid string) (*attemptServer, error) {
	_ = unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0) // where Yama guards, the plain attempts would fail
	signal.Ignore(unix.SIGCONT)
	if err := os.Chdir(dir); err != nil {
		return nil, err
	}
	s := &attemptServer{stage: stage{
		Dir: dir, Server: os.Getpid(), Secret: uint64(uintptr(unsafe.Pointer(&heldSecret[0]))), Setuid: setuid,
		Queue: "execwire-" + strconv.Itoa(os.Getpid()), Path: "stream", Packet: "packet", Base: dir, Name: "@execwire-" + strconv.Itoa(os.Getpid()),
	}}
	for _, network := range []struct{ kind, address string }{
		{"unix", s.stage.Path}, {"unix", s.stage.Name}, {"tcp4", "127.0.0.1:0"},
	} {
		listener, err := net.Listen(network.kind, network.address)
		if err != nil {
			return nil, err
		}
		s.open = append(s.open, listener)
		if address, ok := listener.Addr().(*net.TCPAddr); ok {
			s.stage.TCP = address.Port
		}
	}
	named, err := net.ListenPacket("unixgram", s.stage.Packet)
	if err != nil {
		return nil, err
	}
	packets, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.open = append(s.open, named, packets)
	s.stage.UDP = packets.LocalAddr().(*net.UDPAddr).Port
	if s.stage.File, err = unix.Open(filepath.Join(dir, "secret"), unix.O_RDWR|unix.O_CREAT, 0o600); err != nil {
		return nil, err
	}
	if _, err := unix.Write(s.stage.File, heldSecret); err != nil {
		return nil, err
	}
	if s.stage.Shared, err = unix.SysvShmGet(unix.IPC_PRIVATE, 4096, 0o600|unix.IPC_CREAT); err != nil {
		return nil, err
	}
	// It is kept by being attached, and goes with this process.
	if _, err := unix.SysvShmAttach(s.stage.Shared, 0, 0); err != nil {
		return nil, err
	}
	master, slave, err := pty.Open()
	if err != nil {
		return nil, err
	}
	s.open, s.stage.Pty = append(s.open, master, slave), slave.Name()
	queue, err := unix.BytePtrFromString(s.stage.Queue)
	if err != nil {
		return nil, err
	}
	if err := system(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(queue)), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600); err != nil {
		return nil, fmt.Errorf("message queue: %w", err)
	}
	if s.sandboxes = New(Options{Without: others(backend)}); s.sandboxes.Statuses()[backend-1].Err != nil {
		return nil, s.sandboxes.Statuses()[backend-1].Err
	}
	if os.Geteuid() == 0 {
		if s.stage.Cgroup, err = makeCgroup(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *attemptServer) removeQueue() {
	if name, err := unix.BytePtrFromString(s.stage.Queue); err == nil {
		_ = system(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(name)))
	}
}

func others(backend Backend) []Backend {
	return slices.DeleteFunc([]Backend{Bubblewrap, Landlock}, func(b Backend) bool { return b == backend })
}

// makeCgroup makes a control group in the hierarchy of version 2. The test removes it.
func makeCgroup() (string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if before, after, _ := strings.Cut(line, " - "); strings.HasPrefix(after, "cgroup2 ") {
			dir := filepath.Join(strings.Fields(before)[4], "execwire-sandbox-test-"+strconv.Itoa(os.Getpid()))
			return dir, os.Mkdir(dir, 0o755)
		}
	}
	return "", errors.New("there is no cgroup2 hierarchy to leave a control group in")
}

// run makes one attempt with new files, in a terminal, and returns its output.
func (s *attemptServer) run(name string, sandboxes *Sandboxes) (said string, err error) {
	s.rounds++
	s.stage.Dir = filepath.Join(s.stage.Base, strconv.Itoa(s.rounds))
	for _, dir := range []string{"", "inside", "outside"} {
		if err := os.Mkdir(filepath.Join(s.stage.Dir, dir), 0o755); err != nil {
			return "", err
		}
	}
	if err := errors.Join(os.WriteFile(s.stage.inside(), nil, 0o600), os.WriteFile(s.stage.outside(), nil, 0o600)); err != nil {
		return "", err
	}
	if err := os.Chdir(s.stage.Dir); err != nil { // an attempt may find it as that of the server
		return "", err
	}
	text, err := json.Marshal(s.stage)
	if err != nil {
		return "", err
	}
	argv := testproc.Argv("sandbox-attempt", name, string(text))
	program := Program{Path: argv[0], Argv: argv, Env: []string{promptExit}, Dir: s.stage.Base}
	plan := (*Plan)(nil)
	if sandboxes != nil {
		policy := Policy{Entries: []Entry{
			{Special: SpecialRoot, Access: AccessRead}, {Path: filepath.Join(s.stage.Dir, "inside"), Access: AccessWrite},
		}}
		if plan, err = policy.Resolve(context.Background(), ResolveOptions{}); err != nil {
			return "", err
		}
	}
	output, _, err := inTerminal(program, sandboxes, plan)
	return output, err
}

// nobody is a user without files.
const nobody = 65534

// TestEscapeAttempts_Fail makes every attempt as root and as an ordinary user, with
// each backend. Each has to succeed without a sandbox.
func TestEscapeAttempts_Fail(t *testing.T) {
	testrace.Slow(t)
	if os.Geteuid() != 0 {
		t.Fatal("run the tests as root: they have to be another user too")
	}
	for _, backend := range []Backend{Bubblewrap, Landlock} {
		for user, id := range map[string]uint32{"root": 0, "ordinary user": nobody} {
			t.Run(backend.String()+"/"+user, func(t *testing.T) {
				t.Parallel()
				outcomes := serveAs(t, backend, id)
				for name, attempt := range attempts() {
					outcome, made := outcomes[name]
					switch {
					case !made && !attempt.root && !attempt.ordinary:
						t.Errorf("%s: not tried", name)
					case made && attempt.absent != "" && strings.Contains(outcome.Plain, attempt.absent) && outcome.Confined != "it worked":
						t.Logf("%s: there is no way to do that on this machine", name)
					case made && outcome.Plain != "it worked":
						t.Errorf("%s: without a sandbox it fails too: %s", name, outcome.Plain)
					case made && outcome.Confined == "it worked":
						t.Errorf("%s: it worked", name)
					}
				}
			})
		}
	}
}

// serveAs runs the server of attempts as a user.
func serveAs(t *testing.T, backend Backend, user uint32) map[string]outcome {
	t.Helper()
	dir := t.TempDir()
	letPass(t, dir)
	program, setuid, work := filepath.Join(dir, "program"), filepath.Join(dir, "setuid"), filepath.Join(dir, "work")
	copyProgram(t, program, 0o755)
	copyProgram(t, setuid, 0o4755)
	if err := errors.Join(os.Mkdir(work, 0o755), os.Chown(work, int(user), int(user))); err != nil {
		t.Fatal(err)
	}
	argv := testproc.Argv("sandbox-server", strconv.Itoa(int(backend)), work, setuid)
	command := exec.CommandContext(t.Context(), program, argv[1:]...)
	command.SysProcAttr = &syscall.SysProcAttr{
		Credential:   &syscall.Credential{Uid: user, Gid: user},
		Unshareflags: unix.CLONE_NEWNS, // what is mounted goes with it
	}
	command.Env = []string{promptExit, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + work, "SECRET=" + secret}
	command.Stderr = os.Stderr
	output, err := command.Output()
	removeCgroup(t, command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	var outcomes map[string]outcome
	if err := json.Unmarshal(output, &outcomes); err != nil {
		t.Fatal(err)
	}
	return outcomes
}

func removeCgroup(t *testing.T, server int) {
	groups, err := filepath.Glob("/sys/fs/cgroup/*/execwire-sandbox-test-" + strconv.Itoa(server))
	if err != nil {
		t.Fatal(err)
	}
	top, _ := filepath.Glob("/sys/fs/cgroup/execwire-sandbox-test-" + strconv.Itoa(server))
	for _, group := range append(groups, top...) {
		err := os.Remove(group)
		for end := time.Now().Add(patience); errors.Is(err, unix.EBUSY) && time.Now().Before(end); err = os.Remove(group) {
			time.Sleep(time.Millisecond) // who was in it has been reaped, and leaves it a little later
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func copyProgram(t *testing.T, to string, mode os.FileMode) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	syscall.ForkLock.RLock() // a child forked meanwhile would have the file open for writing, and it could not be executed
	err = os.WriteFile(to, content, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(to, uint32(mode)); err != nil {
		t.Fatal(err)
	}
}

// letPass lets everybody reach a directory for tests.
func letPass(t *testing.T, dir string) {
	t.Helper()
	for ; strings.HasPrefix(dir, os.TempDir()); dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err == nil && info.Mode()&0o005 != 0o005 {
			err = os.Chmod(dir, info.Mode()|0o055) // bubblewrap 0.12 has to read what is above a place
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
