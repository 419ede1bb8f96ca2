package session_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
)

func TestDefaultSession_Empty_IsRemoved(t *testing.T) {
	f := newFixture(t, session.Config{}) // records are removed at once
	for i := range 1000 {
		s, err := f.registry.Open(fmt.Sprint("user", i), "", session.AccessOwner)
		if err != nil {
			t.Fatal(err)
		}
		if list, _ := s.Processes("", 10); len(list) != 0 {
			t.Fatalf("%v", list)
		}
	}
	s, err := f.registry.Open("failing", "", session.AccessOwner)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Start(f.ctx, "p", session.Digest{1}, spec("/no/such/program"), session.StartOptions{}); process.KindOf(err) != process.ProgramNotFound {
		t.Fatalf("Start = %v", err)
	}
	if n := f.registry.Defaults(); n != 0 {
		t.Errorf("%d empty sessions remain", n)
	}
	p := f.start(t, "p", "/bin/cat")
	if n := f.registry.Defaults(); n != 1 {
		t.Errorf("%d sessions remain, want the one with a process", n)
	}
	if _, err := p.Terminate(f.ctx, process.Termination{Cause: process.CauseTerminated}); err != nil {
		t.Fatal(err)
	}
	f.registry.Drained(p)
	if n := f.registry.Defaults(); n != 0 {
		t.Errorf("%d sessions remain after the removal of the last record", n)
	}
}

// Callers that open the empty session at the same time start processes in the same one.
func TestDefaultSession_OpenedTwiceEmpty_IsOne(t *testing.T) {
	f := newFixture(t, session.Config{})
	other, err := f.registry.Open("tester", "", session.AccessOwner)
	if err != nil {
		t.Fatal(err)
	}
	p := f.start(t, "p", "/bin/cat")
	if again, created, err := other.Start(f.ctx, "p", session.Digest{1}, spec("/bin/cat"), session.StartOptions{}); err != nil || created || again != p {
		t.Errorf("Start of the same = %v, %v, %v", again, created, err)
	}
	_, _, err = other.Start(f.ctx, "p", session.Digest{2}, spec("/bin/cat"), session.StartOptions{})
	wantKind(t, err, session.ProcessAlreadyExists)
	o, _, err := other.StartOwned(f.ctx, "q", session.Digest{1}, spec("/bin/cat"), session.StartOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Detach()
	if list, _ := f.Processes("", 10); len(list) != 2 {
		t.Errorf("the session has %d processes, want both", len(list))
	}
	if n := f.registry.Defaults(); n != 1 {
		t.Errorf("%d sessions remain", n)
	}
}

// A process is found until it has closed, however often its session becomes empty.
func TestDefaultSession_Emptied_LosesNoProcess(t *testing.T) {
	f := newFixture(t, session.Config{})
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for n := range 50 {
				id := fmt.Sprint(i, "-", n)
				p, _, err := f.Start(f.ctx, id, session.Digest{1}, spec("/bin/cat"), session.StartOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				if found, err := openDefault(t, f).Process(id); err != nil || found != p {
					t.Errorf("process %s = %v, %v", id, found, err)
				}
				if _, err := p.Terminate(f.ctx, process.Termination{Cause: process.CauseTerminated}); err != nil {
					t.Error(err)
				}
				f.registry.Drained(p)
			}
		})
	}
	group.Wait()
	if n := f.registry.Defaults(); n != 0 {
		t.Errorf("%d sessions remain", n)
	}
}

// Starting, closing and shutting down happen in every order: no process is ended twice, and
// all processes of a session have ended when its close returns.
func TestDefaultSession_ConcurrentCloses(t *testing.T) {
	f := newFixture(t, session.Config{ClosedRetention: time.Hour})
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for n := range 25 {
				id := fmt.Sprint(i, "-", n)
				if _, _, err := openDefault(t, f).Start(f.ctx, id, session.Digest{1}, spec("/bin/cat"), session.StartOptions{}); err != nil {
					t.Error(err) // although another goroutine is closing it
				}
				if err := f.registry.CloseSession(f.ctx, "tester", ""); err != nil {
					t.Error(err)
				}
				if _, err := openDefault(t, f).Process(id); err == nil {
					t.Errorf("process %s exists after its session was closed", id)
				}
			}
		})
	}
	group.Wait()
	if n := f.registry.Defaults(); n != 0 {
		t.Errorf("%d sessions remain", n)
	}
}

// openDefault returns the current default session.
func openDefault(t *testing.T, f *fixture) *session.Session {
	t.Helper()
	s, err := f.registry.Open("tester", "", session.AccessOwner)
	if err != nil {
		t.Error(err)
	}
	return s
}
