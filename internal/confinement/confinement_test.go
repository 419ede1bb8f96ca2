//go:build linux

package confinement

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/sockowner"
)

// roleEnv makes the test binary one of the programs of TestIsShown_UninspectableProcess.
const roleEnv = "CONFINEMENT_TEST_ROLE"

func TestMain(m *testing.M) {
	play, ok := map[string]func() error{"check": checkShown, "dial": dialAndHide}[os.Getenv(roleEnv)]
	if !ok {
		os.Exit(m.Run())
	}
	if err := play(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// program prepares the test binary in this role.
func program(role string, credential *syscall.Credential, variables ...string) *exec.Cmd {
	c := exec.Command("/proc/self/exe")
	c.Env = append(append(os.Environ(), variables...), roleEnv+"="+role)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
	return c
}

// rolesScript takes one role after the other, prints its PID and waits for the end of stdin.
const rolesScript = `
import ctypes, os, sys

def name(text):
    open("/proc/self/comm", "w").write(text)

def add_filter(): # one that allows everything
    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]
    libc = ctypes.CDLL(None, use_errno=True)
    allow = (6).to_bytes(2, sys.byteorder) + b"\0\0" + (0x7fff0000).to_bytes(4, sys.byteorder)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(Program(1, allow))):
        sys.exit(os.strerror(ctypes.get_errno()))

for role in sys.argv[1:]:
    if role == "server":
        name("execwire")
    elif role == "filter":
        add_filter()
    else: # a child has the other roles
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
            sys.exit()
        name("child")
print(os.getpid(), flush=True)
sys.stdin.read()
`

// launch starts a process in these roles until the test ends, and returns its PID.
func launch(t *testing.T, roles ...string) (pid int) {
	t.Helper()
	if _, err := fmt.Sscan(firstLine(t, exec.Command("/usr/bin/python3", append([]string{"-c", rolesScript}, roles...)...)), &pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

// firstLine starts a command until the test ends, and returns the first line of its output.
func firstLine(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%q: %v", c.Args, err)
	}
	return strings.TrimSpace(line)
}

// A process is confined if it has more filters than a server from which it descends.
func TestIsConfined(t *testing.T) {
	below := HasAncestor(os.Getpid(), func(_ int, s State) bool { return s.name == serverName }) // the tests run there
	for roles, want := range map[string]bool{
		"server child filter":              true,
		"server child filter child":        true, // of a confined one
		"server child filter filter child": true,
		"server filter child filter":       true, // the server is confined otherwise
		"server filter child":              false,
		"server child":                     false,
		"child filter":                     below, // as in a container
		"server filter":                    below,
	} {
		t.Run(roles, func(t *testing.T) {
			pid := launch(t, strings.Fields(roles)...)
			if got, err := isConfined(pid); got != want || err != nil {
				t.Errorf("isConfined = %v, %v", got, err)
			}
			if err := CheckPeer(Peer{PID: pid}); errors.Is(err, ErrConfined) != want || !want && err != nil {
				t.Errorf("CheckPeer = %v", err)
			}
			users, err := listConfined()
			for errors.Is(err, errForking) { // as other tests do
				users, err = listConfined()
			}
			if want && len(users) == 0 || err != nil {
				t.Errorf("listConfined = %v, %v", users, err)
			}
		})
	}
}

// noUser is a user without processes.
const noUser = 1 << 31

// Without a confined process of its user a socket is accepted while it is open.
func TestCheckPeer_NoConfinedProcess(t *testing.T) {
	for ended, want := range map[bool]error{false: nil, true: errEnded} {
		err := ErrNotFound // the answer while processes, of other tests, end faster than they can be listed
		for attempts := 0; errors.Is(err, ErrNotFound) && attempts < 1000; attempts++ {
			err = CheckPeer(Peer{UID: noUser, Socket: 1, Ended: func() bool { return ended }})
		}
		if !errors.Is(err, want) {
			t.Errorf("of a socket that was closed: %v: CheckPeer = %v", ended, err)
		}
	}
}

// While a confined process of its user could connect, the owner of a socket has to be found.
func TestCheckPeer_ConfinedProcess_NeedsAnOwner(t *testing.T) {
	launch(t, "server", "child", "filter")
	lis, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	file, err := lis.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		t.Fatal(err)
	}
	uid := uint32(os.Geteuid())
	if err := CheckPeer(Peer{UID: uid, Socket: uint32(stat.Ino)}); err != nil {
		t.Errorf("a socket of this process: CheckPeer = %v", err)
	}
	for name, peer := range map[string]Peer{"in a message": {UID: uid, Socket: 1<<32 - 1}, "unknown": {Unknown: true}} {
		if err := CheckPeer(peer); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: CheckPeer = %v", name, err)
		}
	}
}

// A program of ours that cannot be inspected shows its sockets, to one without privileges.
func TestIsShown_UninspectableProcess(t *testing.T) {
	var nobody *syscall.Credential
	if os.Geteuid() == 0 {
		nobody = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	if got := firstLine(t, program("check", nobody)); got != "visible false, shown true, plain false" {
		t.Error(got)
	}
}

// checkShown starts a process that connects here and cannot be inspected, and prints what is known of
// its sockets.
func checkShown() error {
	lis, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c := program("dial", nil, addressEnv+"="+lis.Addr().String())
	c.Stdin = os.Stdin
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	var shown, plain uint32
	if _, err := fmt.Fscan(out, &shown, &plain); err != nil {
		return err
	}
	never := func(int) (bool, error) { return false, nil }
	_, err = os.Readlink(fmt.Sprintf("/proc/%d/exe", c.Process.Pid))
	fmt.Printf("visible %v, shown %v, plain %v\n", err == nil, CheckSocketOwners(shown, true, never) == nil, CheckSocketOwners(plain, true, never) == nil)
	return c.Wait()
}

// addressEnv is where dialAndHide connects to.
const addressEnv = "CONFINEMENT_TEST_ADDRESS"

// dialAndHide connects with and without sockowner, and prints the inodes of the sockets.
func dialAndHide() error {
	MarkServer()
	for _, dialer := range []*net.Dialer{sockowner.Dialer(), {}} {
		conn, err := dialer.Dial("tcp4", os.Getenv(addressEnv))
		if err != nil {
			return err
		}
		file, err := conn.(*net.TCPConn).File()
		if err != nil {
			return err
		}
		var stat unix.Stat_t
		if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
			return err
		}
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return err
		}
		fmt.Println(stat.Ino)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}
