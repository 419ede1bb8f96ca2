package process

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/confinement"
	"github.com/execwire/execwire/internal/sandbox"
)

// assumeConfinedPeers makes a supervisor check peers as if a confined process had been started.
func assumeConfinedPeers(s *Supervisor) *Supervisor {
	s.confinedPeers.mayConnect.Store(true)
	s.confinedPeers.ungrouped.Store(true)
	return s
}

func TestCheckPeer_NoConfinedProcessWithNetwork_AcceptsAll(t *testing.T) {
	s := newSupervisor(t, Config{})
	if err := s.CheckPeer(confinement.Peer{PID: -1, Socket: 1}); err != nil {
		t.Errorf("CheckPeer = %v", err)
	}
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		p, err := s.Start(testContext(t), confined(shell("exec sleep 1000"), confine(readOnly)))
		if err != nil {
			t.Fatal(err)
		}
		terminate(t, p, Termination{})
	})
	if s.confinedPeers.mayConnect.Load() {
		t.Error("a process without a network counts as one that can connect")
	}
}

// A confined process and its descendants are recognised by their PIDs.
func TestCheckPeer_RejectsConfinedProcesses(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		for _, adopts := range []bool{false, true} {
			s := newSupervisor(t, Config{AdoptOrphans: adopts})
			policy := readOnly
			policy.Network = sandbox.NetworkEnabled
			p, err := s.Start(testContext(t), confined(shell("sleep 1000 | cat; true"), confine(policy)))
			if err != nil {
				t.Fatal(err)
			}
			plain, err := s.Start(testContext(t), shell("exec sleep 1000"))
			if err != nil {
				t.Fatal(err)
			}
			refused := func() (n int) {
				for _, pid := range certainMembers(p) {
					if errors.Is(s.CheckPeer(confinement.Peer{PID: pid}), confinement.ErrConfined) {
						n++
					}
				}
				return n
			}
			for refused() < 3 && testContext(t).Err() == nil { // the shell, sleep and cat
				time.Sleep(time.Millisecond)
			}
			if n := refused(); n < 3 {
				t.Errorf("adopts %v: %d of %v are refused", adopts, n, certainMembers(p))
			}
			for _, pid := range []int{plain.PID(), os.Getpid(), os.Getppid()} {
				if err := s.CheckPeer(confinement.Peer{PID: pid}); err != nil {
					t.Errorf("adopts %v: process %d: %v", adopts, pid, err)
				}
			}
			terminate(t, p, Termination{})
			terminate(t, plain, Termination{})
		}
	})
}

func TestCheckPeer_RejectsUnknownPeers(t *testing.T) {
	s := assumeConfinedPeers(newSupervisor(t, Config{}))
	for name, peer := range map[string]confinement.Peer{
		"a process that has ended":           {PID: 1 << 30}, // no process ever has it, as one of an ended process
		"a PID that may be reused":           {PID: os.Getpid(), Ended: func() bool { return true }},
		"a socket without owner":             {Socket: 1<<32 - 1},
		"a socket of a group that is unused": {Socket: 1<<32 - 1, Cgroup: 1 << 40},
		"unknown to the kernel":              {Unknown: true},
	} {
		if err := s.CheckPeer(peer); err == nil || errors.Is(err, confinement.ErrConfined) {
			t.Errorf("%s: CheckPeer = %v", name, err)
		}
	}
	if err := s.CheckPeer(confinement.Peer{PID: os.Getpid(), Ended: func() bool { return false }}); err != nil {
		t.Errorf("this process: CheckPeer = %v", err)
	}
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
	if err := s.CheckPeer(confinement.Peer{Socket: uint32(stat.Ino)}); err != nil {
		t.Errorf("a socket of this process: CheckPeer = %v", err)
	}
}

func TestDescends(t *testing.T) {
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	if !descends(child.Process.Pid) || descends(os.Getppid()) {
		t.Errorf("of a child: %v, of the parent: %v", descends(child.Process.Pid), descends(os.Getppid()))
	}
}

// foreignProcEnv makes the test binary check a peer in a PID namespace with the /proc of another
// one.
const foreignProcEnv = "PROCESS_TEST_FOREIGN_PROC"

// checkPeerInForeignProc prints the result of CheckPeer for this process, and exits.
func checkPeerInForeignProc() {
	if os.Getenv(foreignProcEnv) != "" {
		fmt.Println(assumeConfinedPeers(&Supervisor{}).CheckPeer(confinement.Peer{PID: os.Getpid()}))
		os.Exit(0)
	}
}

func TestCheckPeer_ProcOfAnotherNamespace_Fails(t *testing.T) {
	inside := exec.Command("/proc/self/exe")
	inside.Env = append(os.Environ(), foreignProcEnv+"=1")
	inside.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	if os.Geteuid() != 0 {
		inside.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
	}
	if out, err := inside.CombinedOutput(); err != nil || !strings.Contains(string(out), "another PID namespace") {
		t.Errorf("CheckPeer = %s (%v)", out, err)
	}
}
