package process

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/sandbox"
)

// hangingBubblewrap confines with a bwrap that runs a script instead, once the file hang exists in
// the directory.
func hangingBubblewrap(t *testing.T, dir, script string) *sandbox.Confinement {
	t.Helper()
	bwrap := filepath.Join(dir, "bwrap")
	text := "#!/bin/sh\nif [ -e " + dir + "/hang ]; then " + script + "; fi\nexec /usr/bin/bwrap \"$@\"\n"
	if err := os.WriteFile(bwrap, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	sandboxes := sandbox.New(sandbox.Options{Bubblewrap: bwrap, Without: []sandbox.Backend{sandbox.Landlock}})
	t.Cleanup(sandboxes.Close)
	plan, err := readOnly.Resolve(testContext(t), sandbox.ResolveOptions{})
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

// A bubblewrap that is killed, for example by a CPU limit, can leave a child that waits for it for
// ever.
func TestStart_WrapperKilled_Fails(t *testing.T) {
	by := hangingBubblewrap(t, directory(t), "sleep 1000 & kill -9 $$")
	s := newSupervisor(t, Config{AdoptOrphans: true})
	_, err := s.Start(testContext(t), confined(shell("true"), by))
	wantKind(t, err, SandboxNotStarted)
	if left := childrenLeft(t); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// Limits apply to the program, and not to the setup of the sandbox, which needs more.
func TestStart_LimitTooLowForSandbox_AppliesToProgramOnly(t *testing.T) {
	by := confinedBy(t, sandbox.Bubblewrap)(readOnly)
	for line, limit := range map[string]Limit{
		"Max open files            4                    4                    files": {Resource: ResourceOpenFiles, Soft: 4, Hard: 4},
		"Max address space         67108864             134217728            bytes": {Resource: ResourceAddressSpaceBytes, Soft: 64 << 20, Hard: 128 << 20},
		"Max data size             4194304              unlimited            bytes": {Resource: ResourceDataBytes, Soft: 4 << 20, Hard: NoLimit},
	} {
		spec := confined(Spec{Argv: []string{"/bin/cat", "/proc/self/limits"}, Cwd: "/"}, by)
		spec.ResourceLimits = []Limit{limit}
		if heard, record := run(t, spec); record.Code != 0 || !strings.Contains(heard.stdout, line) {
			t.Errorf("%+v: %+v, no line %q in %+v", limit, record, line, heard)
		}
	}
}

// Close aborts a confined start that hangs.
func TestClose_AbortsHangingConfinedStart(t *testing.T) {
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
	if err := fifo.SetReadDeadline(time.Now().Add(testTimeout)); err != nil {
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

// A program that is open for writing cannot be executed in a sandbox either.
func TestStart_ConfinedBusyProgram_NotExecutable(t *testing.T) {
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
		waitClosed(t, p)
	})
}
