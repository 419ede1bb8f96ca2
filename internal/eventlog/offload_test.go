package eventlog

import (
	"bytes"
	"fmt"
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

// Output that owners have acknowledged is moved as well, also if older output of theirs was evicted,
// between output without an owner that is in the file.
func TestLog_Offload_Acknowledged(t *testing.T) {
	files := newFiles(t, 64<<20, 64<<20)
	for name, acknowledged := range map[string]func(last uint64) uint64{
		"nothing":     func(uint64) uint64 { return 0 },
		"a part":      func(last uint64) uint64 { return last / 2 },
		"all of them": func(last uint64) uint64 { return last },
	} {
		for _, unowned := range []int{0, 100 << 10, 3 << 20} {
			t.Run(fmt.Sprintf("%s, then %d bytes without an owner", name, unowned), func(t *testing.T) {
				l := discardAtEnd(t, files.New(Limits{}))
				w := l.Writer(Stdout)
				for range 3 {
					o := must[*Owner](t)(l.OwnAcknowledged())
					write(t, l.Writer(Stderr), "more")
					for range 3 {
						flood(w, 700<<10)
						if err := o.Acknowledge(acknowledged(l.Stats().LastSeq)); err != nil {
							t.Fatal(err)
						}
					}
					o.Release(false)
					writeWaiting(t, w, pattern(unowned))
				}
				l.AppendExited()
				l.AppendClosed()
				before, out, held := readAvailable(t, l, 0), l.Snapshot(Stdout), l.Stats().HeldBytes
				l.Offload()
				if s := l.Stats(); s.HeldBytes > 32<<10 || held < 700<<10 || s.RetainedBytes != 0 {
					t.Errorf("it has %d bytes in memory: %+v", held, s)
				}
				if got := readAvailable(t, l, 0); !reflect.DeepEqual(got, before) || len(got.data) < 700<<10 {
					t.Errorf("read %d bytes and the gaps %+v, before %d and %+v", len(got.data), got.gaps, len(before.data), before.gaps)
				}
				if got := l.Snapshot(Stdout); !reflect.DeepEqual(got, out) {
					t.Errorf("its snapshot is %+v, before %+v", got, out)
				}
			})
		}
	}
}

// A log whose output is in use or too small, or whose file is full or lacks what memory has, stays
// as it is.
func TestLog_Offload_NotOfEveryLog(t *testing.T) {
	files := newFiles(t, 64<<20, 64<<20)
	running := discardAtEnd(t, files.New(Limits{}))
	running.Append(Stdout, pattern(32<<10))
	small, _ := closedLog(t, files, 32<<10)
	held, _ := closedLog(t, files, 1<<20)
	must[*Owner](t)(held.Own(0)).Release(true)
	full, _ := closedLog(t, newFiles(t, 1<<20, 64<<20), 5<<20)
	failing, writes := newFiles(t, 64<<20, 64<<20), 0
	disk := failing.writeAt
	failing.writeAt = func(f *os.File, data []byte, offset int64) (int, error) {
		if writes++; writes == 1 {
			return 0, syscall.EIO
		}
		return disk(f, data, offset)
	}
	failed, _ := closedLog(t, failing, 1<<20)
	none, _ := closedLog(t, nil, 1<<20)
	for name, l := range map[string]*Log{
		"running": running, "small": small, "held": held, "full": full, "failed once": failed, "without files": none,
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
		if s := l.Stats(); len(got.gaps) > 0 || len(got.data) != len(written)+len("begundone") || s.RetainedBytes < 700<<10 ||
			name == "a full limit" && s.HasFile {
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

// A writer that waits when the log closes does not try to write what the disk does not take.
func TestLog_Closed_WriterWritesNothing(t *testing.T) {
	files, writes := newFiles(t, 64<<20, 64<<20), 0
	l := discardAtEnd(t, files.New(Limits{}))
	owner := must[*Owner](t)(l.Own(0))
	w := l.Writer(Stdout)
	flood(w, 2<<20)
	waited := make(chan error, 1)
	go func() { waited <- w.WaitSpace(testContext(t)) }()
	untilWaiting(t, l, &l.writers, 1)
	files.writeAt = func(*os.File, []byte, int64) (int, error) {
		writes++
		return 0, syscall.EIO
	}
	w.Close()
	l.AppendExited()
	l.AppendClosed()
	owner.Release(false)
	if err := <-waited; err != nil || writes > 0 {
		t.Errorf("%v after %d writes", err, writes)
	}
}
