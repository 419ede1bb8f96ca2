package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/eventlog"
)

func TestDrain_ForeignWriter_StreamEndsAfterKill(t *testing.T) {
	s := newSupervisor(t, Config{})
	p, err := s.Start(testContext(t), shell("echo first; exec sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	readLog(t, p).until("first")
	held, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", p.PID()), os.O_WRONLY, 0) // as if it had been passed to another process
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	owner, err := p.Log().Own(0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held.Write([]byte("last words\n")); err != nil {
		t.Fatal(err)
	}
	result := terminate(t, p, Termination{})
	if result.Exit.Signal != syscall.SIGKILL {
		t.Errorf("%+v", result)
	}
	total, kinds := drain(t, owner)
	if total != len("first\nlast words\n") || kinds[len(kinds)-1] != "closed" {
		t.Errorf("%d bytes, events %v", total, kinds)
	}
	waitClosed(t, p)
	poll(t, "the end of the pipe", func() bool {
		_, err := held.Write([]byte("x"))
		return errors.Is(err, unix.EPIPE)
	})
}

func TestDrain_SlowOwner_GetsAllOutput(t *testing.T) {
	s := newSupervisor(t, Config{})
	spec := shell("head -c 60000 /dev/zero; exec sleep 1000")
	spec.Output.WindowBytes, spec.Output.Held = 4096, true
	p, err := s.Start(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	owner, err := p.Log().Own(0)
	if err != nil {
		t.Fatal(err)
	}
	poll(t, "the shell to become sleep", func() bool {
		name, _ := os.ReadFile("/proc/" + strconv.Itoa(p.PID()) + "/comm")
		return string(name) == "sleep\n"
	})
	held, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", p.PID()), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	terminate(t, p, Termination{})
	if state := p.State(); state != StateExited {
		t.Errorf("state %v, while the owner has not read the output", state)
	}
	if total, _ := drain(t, owner); total != 60000 {
		t.Errorf("%d bytes", total)
	}
	waitClosed(t, p)
}

// The log has all output before there is an owner, whose window is then full, and a foreign process
// keeps the pipe open.
func TestDrain_EmptyStream_EndsWithFullWindow(t *testing.T) {
	s := newSupervisor(t, Config{})
	const size = 60000
	spec := shell(fmt.Sprintf("head -c %d /dev/zero; exec sleep 1000", size))
	spec.Output.WindowBytes = 4096
	p, err := s.Start(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	poll(t, "the log to have everything", func() bool {
		return p.log.Snapshot(eventlog.Stdout).Total == size
	})
	poll(t, "the shell to become sleep", func() bool {
		name, _ := os.ReadFile("/proc/" + strconv.Itoa(p.PID()) + "/comm")
		return string(name) == "sleep\n"
	})
	owner, err := p.Log().Own(0)
	if err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", p.PID()), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	terminate(t, p, Termination{})
	if total, _ := drain(t, owner); total != size {
		t.Errorf("%d bytes", total)
	}
	waitClosed(t, p)
}

// Only output from before the end of all descendants delays the close, not what a foreign process
// goes on writing.
func TestDrain_FloodingForeignWriter_StreamEnds(t *testing.T) {
	s := newSupervisor(t, Config{})
	spec := shell("echo first; exec sleep 1000")
	spec.Output.WindowBytes = 4096
	p, err := s.Start(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	readLog(t, p).until("first")
	owner, err := p.Log().Own(0)
	if err != nil {
		t.Fatal(err)
	}
	flood := exec.Command("/bin/sh", "-c", fmt.Sprintf("exec >/proc/%d/fd/1; exec cat /dev/zero", p.PID()))
	if err := flood.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = flood.Process.Kill(); _ = flood.Wait() }()
	poll(t, "the flood", p.OutputBlocked)
	terminate(t, p, Termination{})
	if total, _ := drain(t, owner); total > 2*largePipeBytes {
		t.Errorf("%d bytes after the end of all descendants", total)
	}
	waitClosed(t, p)
}
