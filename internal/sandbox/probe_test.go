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

func TestEveryBackendWorksHere(t *testing.T) {
	s := Probe(t.Context(), Options{})
	defer s.Close()
	for _, status := range s.Statuses() {
		if status.Err != nil {
			t.Errorf("%v: %v", status.Backend, status.Err)
		}
	}
}

func TestTheStrongestThatCanIsChosen(t *testing.T) {
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
		sandboxes := Probe(t.Context(), Options{Without: test.without})
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

// TestProbeFindsFault gives a probe programs in the place of bubblewrap that do not confine.
func TestProbeFindsFault(t *testing.T) {
	dir := build(t, "none = #!/bin/sh\nshift 3; exec bwrap --bind / / --dev /dev --cap-add ALL -- \"$@\"\n", "fails = #!/bin/sh\necho it is broken >&2; exit 1\n",
		"closed = #!/bin/sh\necho \"bwrap: Can't mkdir parents for /a/b: Permission denied\" >&2; exit 1\n")
	for name, want := range map[string]string{"none": "a confined program could", "fails": "it is broken", "closed": "let the server's user", "missing": "no such file"} {
		path := filepath.Join(dir, name)
		_ = os.Chmod(path, 0o755)
		sandboxes := Probe(t.Context(), Options{Bubblewrap: path, Without: []Backend{Landlock}})
		err := sandboxes.Statuses()[0].Err
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		sandboxes.Close()
	}
	if sandboxes := Probe(t.Context(), Options{Bubblewrap: "bwrap", Without: []Backend{Landlock}}); sandboxes.Statuses()[0].Err == nil {
		t.Error("a relative path was accepted")
	}
}

// TestProbeNeedsNoPlaceForTemporaryFiles: a directory that is missing, or that a sandbox has of its own, says nothing
// about the backends.
func TestProbeNeedsNoPlaceForTemporaryFiles(t *testing.T) {
	for _, dir := range []string{"/dev/shm", build(t) + "/missing", "relative", "/proc"} {
		t.Setenv("TMPDIR", dir)
		s := Probe(t.Context(), Options{})
		for _, status := range s.Statuses() {
			if status.Err != nil {
				t.Errorf("%s: %v: %v", dir, status.Backend, status.Err)
			}
		}
		s.Close()
	}
}

// TestDeniedProcIsRefused: programs do not run without it.
func TestDeniedProcIsRefused(t *testing.T) {
	for _, path := range []string{"/proc", "/dev", "/proc/sys"} {
		plan := resolve(t, Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}, {Path: path, Access: AccessNone}}})
		if _, err := probed(t, Bubblewrap).Confine(plan); KindOf(err) != Unavailable {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestStatusesAreInOrder(t *testing.T) {
	sandboxes := Probe(t.Context(), Options{Without: []Backend{Bubblewrap, Landlock}})
	defer sandboxes.Close()
	var order []Backend
	for _, status := range sandboxes.Statuses() {
		order = append(order, status.Backend)
	}
	if !slices.Equal(order, []Backend{Bubblewrap, Landlock}) {
		t.Errorf("order %v", order)
	}
}

// TestLaterProbesWhenItIsNeeded, once, whoever needs it first.
func TestLaterProbesWhenItIsNeeded(t *testing.T) {
	sandboxes := Later(Options{})
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

// TestNobodyWaitsForAHungProbe: a program in the place of bubblewrap that never ends.
func TestNobodyWaitsForAHungProbe(t *testing.T) {
	dir := build(t, "hangs = #!/bin/sh\nexec sleep 600\n")
	_ = os.Chmod(dir+"/hangs", 0o755)
	sandboxes := Later(Options{Bubblewrap: dir + "/hangs", Without: []Backend{Landlock}})
	left := errors.New("somebody else has come")
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

// TestWhatWasNotNeededIsNotProbed: nor is it when it is too late.
func TestWhatWasNotNeededIsNotProbed(t *testing.T) {
	dir := build(t)
	mark := "#!/bin/sh\n: >" + dir + "/began\n"
	if err := os.WriteFile(dir+"/bwrap", []byte(mark), 0o700); err != nil {
		t.Fatal(err)
	}
	sandboxes := Later(Options{Bubblewrap: dir + "/bwrap"})
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
