package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAStreamThatSomebodyElseHoldsDoesNotOutliveTheKill(t *testing.T) {
	s := newSupervisor(t, Config{})
	p, err := s.Start(testContext(t), shell("echo first; exec sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	listen(t, p).until("first")
	held, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", p.PID()), os.O_WRONLY, 0) // as if it had been passed away
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
	exit(t, p)
	poll(t, "the end of the pipe", func() bool {
		_, err := held.Write([]byte("x"))
		return errors.Is(err, unix.EPIPE)
	})
}

func TestAForsakenStreamWaitsForItsSlowOwner(t *testing.T) {
	s := newSupervisor(t, Config{})
	spec := shell("head -c 60000 /dev/zero; exec sleep 1000")
	spec.Output.WindowBytes = 4096
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
		t.Errorf("state %v, while the owner has not taken what was said", state)
	}
	if total, _ := drain(t, owner); total != 60000 {
		t.Errorf("%d bytes", total)
	}
	exit(t, p)
}
