package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/sandbox"
)

// hangingBubblewrap confines by a bwrap that runs a script instead, once the file hang is in the directory.
func hangingBubblewrap(t *testing.T, dir, script string) *sandbox.Confinement {
	t.Helper()
	bwrap := filepath.Join(dir, "bwrap")
	text := "#!/bin/sh\nif [ -e " + dir + "/hang ]; then " + script + "; fi\nexec /usr/bin/bwrap \"$@\"\n"
	if err := os.WriteFile(bwrap, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	sandboxes := sandbox.Probe(testContext(t), sandbox.Options{Bubblewrap: bwrap, Without: []sandbox.Backend{sandbox.Landlock}})
	t.Cleanup(sandboxes.Close)
	plan, err := readOnly.Resolve(testContext(t), sandbox.Surroundings{})
	if err != nil {
		t.Fatal(err)
	}
	by, err := sandboxes.Confine(plan)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/hang", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return by
}

// A bubblewrap that is killed can leave a child that waits for it for ever, as one with no processor time does.
func TestAStartEndsWithWhoStandsForTheProgram(t *testing.T) {
	by := hangingBubblewrap(t, directory(t), "sleep 1000 & kill -9 $$")
	s := newSupervisor(t, Config{AdoptOrphans: true})
	_, err := s.Start(testContext(t), confined(shell("true"), by))
	wantKind(t, err, SandboxNotStarted)
	if left := childrenLeft(t); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// A limit that is too low for what makes the sandbox is named.
func TestALimitThatIsTooLowForASandboxIsNamed(t *testing.T) {
	by := confinedBy(t, sandbox.Bubblewrap)(readOnly)
	for _, limit := range []Limit{
		{Resource: ResourceOpenFiles, Soft: 4, Hard: 4}, {Resource: ResourceOpenFiles, Soft: 14, Hard: 14},
		{Resource: ResourceAddressSpaceBytes, Soft: 1 << 20, Hard: 1 << 20},
	} {
		spec := confined(shell("true"), by)
		spec.ResourceLimits = []Limit{limit}
		_, err := newSupervisor(t, Config{}).Start(testContext(t), spec)
		if wantKind(t, err, SandboxNotStarted); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("raise %v=%d", limit.Resource, limit.Soft)) {
			t.Errorf("%v=%d: %v", limit.Resource, limit.Soft, err)
		}
	}
}

// The end of the supervisor ends a start that hangs.
func TestAStartThatHangsEndsWithItsSupervisor(t *testing.T) {
	dir := directory(t)
	begun := filepath.Join(dir, "begun") // a FIFO can be written to where files are read-only
	if err := unix.Mkfifo(begun, 0o600); err != nil {
		t.Fatal(err)
	}
	fifo, err := os.OpenFile(begun, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer fifo.Close()
	by := hangingBubblewrap(t, dir, "echo >"+begun+"; exec sleep 1000")
	s := newSupervisor(t, Config{AdoptOrphans: true})
	failed := make(chan error, 1)
	go func() {
		_, err := s.Start(testContext(t), confined(shell("true"), by))
		failed <- err
	}()
	if err := fifo.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := fifo.Read(make([]byte, 1)); err != nil {
		t.Fatalf("the sandbox did not begin: %v", err)
	}
	if err := s.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	wantKind(t, <-failed, ShuttingDown)
}

// A program that is open for writing cannot be executed, inside a sandbox neither.
func TestABusyProgramIsRefusedConfined(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		path := filepath.Join(directory(t), "true")
		text, err := os.ReadFile("/bin/true")
		if err == nil {
			err = os.WriteFile(path, text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		busy, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		s := newSupervisor(t, Config{})
		_, err = s.Start(testContext(t), confined(Spec{Argv: []string{path}, Cwd: "/"}, confine(readOnly)))
		if wantKind(t, err, NotExecutable); !errors.Is(err, unix.ETXTBSY) {
			t.Errorf("%v", err)
		}
		_ = busy.Close()
		p, err := s.Start(testContext(t), confined(Spec{Argv: []string{path}, Cwd: "/"}, confine(readOnly)))
		if err != nil {
			t.Fatal(err)
		}
		exit(t, p)
	})
}
