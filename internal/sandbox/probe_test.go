package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestProbe_EveryBackendWorks(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	for _, status := range s.Statuses() {
		if status.Err != nil {
			t.Errorf("%v: %v", status.Backend, status.Err)
		}
	}
}

func TestConfine_ChoosesTheStrongestBackend(t *testing.T) {
	dir := build(t, "w/.git/")
	plain := resolve(t, Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}}})
	holes := resolve(t, Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}, {Path: dir + "/w", Access: AccessWrite}}})
	for _, test := range []struct {
		without []Backend
		plan    *Plan
		want    Backend // 0: none
	}{
		{nil, plain, Bubblewrap},
		{nil, holes, Bubblewrap},
		{[]Backend{Bubblewrap}, plain, Landlock},
		{[]Backend{Bubblewrap}, holes, 0},
		{[]Backend{Bubblewrap, Landlock}, plain, 0},
	} {
		sandboxes := New(Options{Without: test.without})
		confinement, err := sandboxes.Confine(test.plan)
		var typed *Error
		switch {
		case test.want == 0:
			if !errors.As(err, &typed) || typed.Kind != Unavailable || len(typed.Reasons) != 2 {
				t.Errorf("without %v: %v", test.without, err)
			}
		case err != nil:
			t.Errorf("without %v: %v", test.without, err)
		case confinement.Report().Backend != test.want:
			t.Errorf("without %v: %v, want %v", test.without, confinement.Report().Backend, test.want)
		}
		sandboxes.Close()
	}
}

// TestProbe_OfAProgramThatDoesNotConfine_Fails replaces bwrap by programs that do not
// confine.
func TestProbe_OfAProgramThatDoesNotConfine_Fails(t *testing.T) {
	dir := build(t, "none = #!/bin/sh\nshift 3; exec bwrap --bind / / --dev /dev --cap-add ALL -- \"$@\"\n", "fails = #!/bin/sh\necho it is broken >&2; exit 1\n",
		"closed = #!/bin/sh\necho \"bwrap: Can't mkdir parents for /a/b: Permission denied\" >&2; exit 1\n")
	for name, want := range map[string]string{"none": "a confined program could", "fails": "it is broken", "closed": "let the server's user", "missing": "no such file"} {
		path := filepath.Join(dir, name)
		_ = os.Chmod(path, 0o755)
		sandboxes := New(Options{Bubblewrap: path, Without: []Backend{Landlock}})
		err := sandboxes.Statuses()[0].Err
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		sandboxes.Close()
	}
	if sandboxes := New(Options{Bubblewrap: "bwrap", Without: []Backend{Landlock}}); sandboxes.Statuses()[0].Err == nil {
		t.Error("a relative path was accepted")
	}
}

// TestProbe_WithAnyTMPDIR_Works: a directory that is missing, or virtual in a sandbox,
// does not make a backend fail.
func TestProbe_WithAnyTMPDIR_Works(t *testing.T) {
	for _, dir := range []string{"/dev/shm", build(t) + "/missing", "relative", "/proc"} {
		t.Setenv("TMPDIR", dir)
		s := New(Options{})
		for _, status := range s.Statuses() {
			if status.Err != nil {
				t.Errorf("%s: %v: %v", dir, status.Backend, status.Err)
			}
		}
		s.Close()
	}
}

// TestConfine_DeniedProc_IsRefused: programs do not run without /proc.
func TestConfine_DeniedProc_IsRefused(t *testing.T) {
	for _, path := range []string{"/proc", "/dev", "/proc/sys"} {
		plan := resolve(t, Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}, {Path: path, Access: AccessNone}}})
		if _, err := probed(t, Bubblewrap).Confine(plan); KindOf(err) != Unavailable {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestStatuses_AreInOrder(t *testing.T) {
	sandboxes := New(Options{Without: []Backend{Bubblewrap, Landlock}})
	defer sandboxes.Close()
	var order []Backend
	for _, status := range sandboxes.Statuses() {
		order = append(order, status.Backend)
	}
	if !slices.Equal(order, []Backend{Bubblewrap, Landlock}) {
		t.Errorf("order %v", order)
	}
}

// TestSandboxes_ProbeOnceOnFirstUse probes from several goroutines.
func TestSandboxes_ProbeOnceOnFirstUse(t *testing.T) {
	sandboxes := New(Options{})
	defer sandboxes.Close()
	plan := resolve(t, Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}}})
	var waiting sync.WaitGroup
	for range 8 {
		waiting.Go(func() {
			if confinement, err := sandboxes.Confine(plan); err != nil || confinement.Report().Backend != Bubblewrap {
				t.Errorf("Confine: %v", err)
			}
		})
	}
	waiting.Wait()
	if err := sandboxes.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSandboxes_HungProbe_CanBeClosed replaces bwrap by a program that does not end.
func TestSandboxes_HungProbe_CanBeClosed(t *testing.T) {
	dir := build(t, "hangs = #!/bin/sh\nexec sleep 600\n")
	_ = os.Chmod(dir+"/hangs", 0o755)
	sandboxes := New(Options{Bubblewrap: dir + "/hangs", Without: []Backend{Landlock}})
	left := errors.New("the caller has left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(left)
	if err := sandboxes.Wait(ctx); !errors.Is(err, left) {
		t.Errorf("Wait = %v", err)
	}
	sandboxes.Close() // ends the program
	for _, status := range sandboxes.Statuses() {
		if status.Err == nil {
			t.Errorf("%v works", status.Backend)
		}
	}
}

// TestSandboxes_ClosedBeforeUse_AreNotProbed, neither before nor after Close.
func TestSandboxes_ClosedBeforeUse_AreNotProbed(t *testing.T) {
	dir := build(t)
	mark := "#!/bin/sh\n: >" + dir + "/began\n"
	if err := os.WriteFile(dir+"/bwrap", []byte(mark), 0o700); err != nil {
		t.Fatal(err)
	}
	sandboxes := New(Options{Bubblewrap: dir + "/bwrap"})
	sandboxes.Close()
	_, err := sandboxes.Confine(resolve(t, Policy{}))
	if KindOf(err) != Unavailable {
		t.Errorf("Confine: %v", err)
	}
	if _, err := os.Stat(dir + "/began"); err == nil {
		t.Error("it was probed")
	}
	var none Sandboxes
	if _, err := none.Confine(resolve(t, Policy{})); KindOf(err) != Unavailable || none.Wait(t.Context()) != nil {
		t.Errorf("Confine of nothing: %v", err)
	}
	none.Close()
}
