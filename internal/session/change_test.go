package session_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
)

func TestOnChange_IsCalled(t *testing.T) {
	changes := make(chan struct{}, 16)
	f := newFixture(t, session.Config{ClosedRetention: time.Millisecond, OnChange: func() { changes <- struct{}{} }})
	awaitChange := func(what string) {
		t.Helper()
		select {
		case <-changes:
		case <-f.ctx.Done():
			t.Fatalf("OnChange was not called after the process %s", what)
		}
	}
	p := f.start(t, "p", "/bin/cat")
	awaitChange("was started")
	if err := p.CloseStdin(f.ctx); err != nil {
		t.Fatal(err)
	}
	awaitChange("has closed")
	awaitChange("was removed")
	_, err := f.Process("p")
	wantKind(t, err, session.ProcessNotFound)
}

// Moving the output of a closed process to its file frees memory.
func TestOnChange_IsCalledAfterOutputWasMoved(t *testing.T) {
	files := eventlog.NewFiles(t.TempDir(), nil)
	files.SetLimits(64<<20, 1<<30)
	var p atomic.Pointer[session.Process]
	moved := make(chan struct{}, 1)
	f := newFixtureOf(t, process.NewSupervisor(process.Config{Files: files}), session.Config{ClosedRetention: time.Minute, OnChange: func() {
		if p := p.Load(); p != nil && p.Log().Stats().RetainedBytes == 0 {
			select {
			case moved <- struct{}{}:
			default:
			}
		}
	}})
	p.Store(f.start(t, "p", "/bin/sh", "-c", "read line; head -c 1000000 /dev/zero"))
	if err := p.Load().CloseStdin(f.ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case <-moved:
	case <-f.ctx.Done():
		t.Fatalf("OnChange was not called: %+v", p.Load().Log().Stats())
	}
}

// A record that is removed before its output has moved to a file leaves no file.
func TestRemove_BeforeOutputWasMoved_LeavesNoFile(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // what is started in the background begins later
	files := eventlog.NewFiles(t.TempDir(), nil)
	files.SetLimits(64<<20, 1<<30)
	f := newFixtureOf(t, process.NewSupervisor(process.Config{Files: files}), session.Config{ClosedRetention: 0})
	for i := range 10 {
		p := f.start(t, fmt.Sprint(i), "/bin/sh", "-c", "head -c 300000 /dev/zero")
		<-p.Closed()
	}
	until(t, f, "all processes have ended", func() bool { return f.registry.Totals().Running == 0 })
	if err := f.registry.Close(f.ctx); err != nil {
		t.Fatal(err)
	}
	if open := files.Stats().Open; open > 0 {
		t.Errorf("%d files remain", open)
	}
}
