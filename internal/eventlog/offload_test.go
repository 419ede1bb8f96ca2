package eventlog

import (
	"bytes"
	"os"
	"reflect"
	"sync"
	"syscall"
	"testing"
)

// closedLog returns a closed log of two streams, and what was written to standard output.
func closedLog(t *testing.T, files *Files, bytes int) (l *Log, written []byte) {
	t.Helper()
	l = discardAtEnd(t, files.New(Limits{}))
	written = pattern(bytes)
	write(t, l.Writer(Stderr), "begun")
	writeWaiting(t, l.Writer(Stdout), written)
	writeWaiting(t, l.Writer(Stderr), []byte("done"))
	l.AppendExited()
	l.AppendClosed()
	return l, written
}

func TestLog_Offload_KeepsAllOutOfMemory(t *testing.T) {
	for name, size := range map[string]int{"small": 200 << 10, "of memory": 1 << 20, "of the file": 5 << 20} {
		t.Run(name, func(t *testing.T) {
			files := newFiles(t, 64<<20, 64<<20)
			l, written := closedLog(t, files, size)
			before, out, errs := readAvailable(t, l, 0), l.Snapshot(Stdout), l.Snapshot(Stderr)
			if !l.Stats().CanOffload {
				t.Fatalf("%+v", l.Stats())
			}
			l.Offload()
			s := l.Stats()
			if s.HeldBytes > 16<<10 || s.RetainedBytes != 0 || s.CanOffload || s.FirstAvailableSeq != 1 {
				t.Errorf("%+v", s)
			}
			if got := readAvailable(t, l, 0); !reflect.DeepEqual(got, before) || len(got.data) != len(written)+len("begundone") {
				t.Errorf("read %d bytes and the gaps %+v, before %d bytes", len(got.data), got.gaps, len(before.data))
			}
			for id, want := range map[Stream]StreamSnapshot{Stdout: out, Stderr: errs} {
				if got := l.Snapshot(id); !reflect.DeepEqual(got, want) {
					t.Errorf("%v has %+v, before %+v", id, got, want)
				}
			}
			if got := l.Tail(Stdout, 100); !bytes.HasSuffix(written, got) || len(got) != 100 {
				t.Errorf("its tail is %q", got)
			}
			l.Offload() // nothing happens
		})
	}
}

// A log whose output is acknowledged, lost or in use, or too small, stays as it is.
func TestLog_Offload_NotOfEveryLog(t *testing.T) {
	files := newFiles(t, 64<<20, 64<<20)
	running := discardAtEnd(t, files.New(Limits{}))
	running.Append(Stdout, pattern(32<<10))
	small, _ := closedLog(t, files, 32<<10)
	held, _ := closedLog(t, files, 1<<20)
	must[*Owner](t)(held.Own(0)).Release(true)
	acknowledged, _ := closedLog(t, files, 1<<20)
	must[*Owner](t)(acknowledged.Own(2)).Release(false)
	lost, _ := closedLog(t, newFiles(t, 1<<20, 64<<20), 5<<20)
	none, _ := closedLog(t, nil, 1<<20)
	for name, l := range map[string]*Log{
		"running": running, "small": small, "held": held, "acknowledged": acknowledged, "lost": lost, "without files": none,
	} {
		before := l.Stats()
		l.Offload()
		if after := l.Stats(); after != before || after.CanOffload {
			t.Errorf("%s: %+v, before %+v", name, after, before)
		}
	}
}

// Output that the disk does not take stays in memory.
func TestLog_Offload_DiskFails_LosesNothing(t *testing.T) {
	for name, files := range map[string]*Files{
		"a full limit":   newFiles(t, 64<<20, 512<<10),
		"a failing disk": newFiles(t, 64<<20, 64<<20),
		"many files":     newFiles(t, 64<<20, 64<<20),
	} {
		l, written := closedLog(t, files, 700<<10)
		switch name {
		case "a failing disk":
			disk := files.writeAt
			writes := 0
			files.writeAt = func(f *os.File, data []byte, offset int64) (int, error) {
				if writes++; writes > 3 {
					return 0, syscall.EIO
				}
				return disk(f, data, offset)
			}
		case "many files":
			files.most = 0
		}
		l.Offload()
		got := readAvailable(t, l, 0)
		if s := l.Stats(); len(got.gaps) > 0 || len(got.data) != len(written)+len("begundone") || s.RetainedBytes < 700<<10 {
			t.Errorf("%s: read %d bytes and the gaps %+v: %+v", name, len(got.data), got.gaps, s)
		}
	}
}

// The output of a log that is discarded or owned meanwhile is in use until then.
func TestLog_Offload_BesideOthers(t *testing.T) {
	files := newFiles(t, 64<<20, 64<<20)
	for range 50 {
		l, written := closedLog(t, files, 300<<10)
		others := []func(){
			l.Offload,
			func() { l.Snapshot(Stdout) },
			func() {
				o := must[*Owner](t)(l.Own(0))
				defer o.Release(false)
				if n, _ := drain(t, o); n != len(written)+len("begundone") {
					t.Errorf("an owner got %d bytes", n)
				}
			},
		}
		var group sync.WaitGroup
		for _, f := range others {
			group.Go(f)
		}
		group.Wait()
		group.Go(l.Offload)
		group.Go(l.Discard)
		group.Go(func() { l.Snapshot(Stdout) })
		group.Wait()
	}
}
