package session

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/testproc"
)

// faultyFile fails to write, or to read, once it is told to.
type faultyFile struct {
	spoolFile

	writes, reads atomic.Int64 // that still succeed
}

var errFault = errors.New("no space left on the test's device")

func (f *faultyFile) WriteAt(b []byte, at int64) (int, error) {
	if f.writes.Add(-1) < 0 {
		return 0, errFault
	}
	return f.spoolFile.WriteAt(b, at)
}

func (f *faultyFile) ReadAt(b []byte, at int64) (int, error) {
	if f.reads.Add(-1) < 0 {
		return 0, errFault
	}
	return f.spoolFile.ReadAt(b, at)
}

// faultTest is a session with a process that says size bytes, detached.
type faultTest struct {
	registry *Registry
	ctx      context.Context
	session  *Session
	process  *Process
	file     *faultyFile
	size     int
}

func newFaultTest(t *testing.T, writes int64) *faultTest {
	t.Helper()
	ft := &faultTest{size: 1 << 20}
	ft.registry = NewRegistry(process.NewSupervisor(process.Config{}), Config{SpoolBytes: 16 << 20, MaxGrace: time.Hour, DefaultGrace: time.Hour})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	ft.ctx = ctx
	t.Cleanup(func() {
		if err := ft.registry.Close(ctx); err != nil {
			t.Error(err)
		}
		cancel()
	})
	a, err := ft.registry.Attach(ctx, "tester", AttachRequest{WhenDetached: WhenDetachedSpool})
	if err != nil {
		t.Fatal(err)
	}
	ft.session = a.Session()
	ft.file = &faultyFile{spoolFile: ft.session.spool.file}
	ft.file.writes.Store(writes)
	ft.file.reads.Store(1 << 40)
	ft.session.spool.file = ft.file
	ft.process, _, err = ft.session.Start(ctx, "p", Digest{}, process.Spec{Argv: testproc.Argv("flood", "-bytes", "1048576"), Cwd: "/", Env: []string{testproc.PromptExit},
		Output: eventlog.Limits{RetainedBytes: 128 << 10, WindowBytes: 64 << 10}})
	if err != nil {
		t.Fatal(err)
	}
	a.Lost()
	return ft
}

// takeAll attaches and takes everything; it returns what was declared missing.
func (ft *faultTest) takeAll(t *testing.T) (said []byte, gap *eventlog.Gap) {
	t.Helper()
	a, err := ft.registry.Attach(ft.ctx, "tester", AttachRequest{SessionID: ft.session.id})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Lost()
	for seq := uint64(0); ; {
		d, err := a.Next(ft.ctx, 0)
		if err != nil {
			t.Fatal(err)
		}
		if d.Batch.Gap != nil {
			gap, seq = d.Batch.Gap, d.Batch.Gap.FirstAvailableSeq-1
		}
		for _, e := range d.Batch.Events {
			if e.Seq != seq+1 {
				t.Fatalf("event %d follows %d", e.Seq, seq)
			}
			seq = e.Seq
			said = append(said, e.Data...)
			if e.Kind == eventlog.Closed {
				return said, gap
			}
		}
		if err := a.Acknowledge("p", seq); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNothingIsLostWhenTheDiskIsFull(t *testing.T) {
	ft := newFaultTest(t, 20)
	for ft.process.Log().Stats().UnacknowledgedBytes < 40<<10 || ft.file.writes.Load() >= 0 {
		if ft.ctx.Err() != nil {
			t.Fatal("the process never blocks")
		}
		time.Sleep(time.Millisecond)
	}
	said, gap := ft.takeAll(t)
	want, _ := io.ReadAll(testproc.StdoutPattern.Reader(int64(ft.size)))
	if gap != nil || !bytes.Equal(said, want) {
		t.Errorf("%d of %d bytes arrived, gap %+v", len(said), len(want), gap)
	}
}

func TestSpoolThatCannotBeReadIsADeclaredGap(t *testing.T) {
	ft := newFaultTest(t, 1<<40)
	<-ft.process.Closed()
	for !ft.process.Log().Stats().Closed || ft.process.Log().Stats().Acknowledged < ft.process.Log().Stats().LastSeq {
		if ft.ctx.Err() != nil {
			t.Fatal("it is never spooled")
		}
		time.Sleep(time.Millisecond)
	}
	ft.file.reads.Store(3)
	said, gap := ft.takeAll(t) // to the closed event
	if gap == nil || !gap.Inexact || len(said) == 0 || len(said)+int(gap.DroppedBytes) < ft.size {
		t.Errorf("%d bytes arrived, gap %+v", len(said), gap)
	}
}

func TestSpoolHasNoName(t *testing.T) {
	for name, open := range map[string]func(string) (*os.File, error){"at once": openUnnamed, "after a moment": openAndRemove} {
		dir := t.TempDir()
		file, err := open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("%s: %v, %v", name, entries, err)
		}
		if info, err := file.Stat(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
		if _, err := file.WriteAt([]byte("x"), 1<<20); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
