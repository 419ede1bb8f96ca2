package eventlog

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
)

func newFiles(t *testing.T, perLog, total int64) *Files {
	f := NewFiles(t.TempDir(), nil)
	f.SetLimits(perLog, total)
	t.Cleanup(func() {
		if s := f.Stats(); s.Open != 0 || s.Bytes != 0 {
			t.Errorf("%d files of %d bytes remain", s.Open, s.Bytes)
		}
	})
	return f
}

// discardAtEnd discards the log at the end of the test, before the check of its files.
func discardAtEnd(t *testing.T, l *Log) *Log {
	t.Cleanup(l.Discard)
	return l
}

// writeWaiting writes data as a process does that may be blocked.
func writeWaiting(t *testing.T, w *Writer, data []byte) {
	t.Helper()
	for len(data) > 0 {
		buf := w.Buffer()
		if buf == nil {
			if err := w.WaitSpace(testContext(t)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		n := copy(buf, data)
		w.Commit(n, noTime)
		data = data[n:]
	}
}

// reading is what a reader gets.
type reading struct {
	data []byte
	gaps []Gap
}

// readAvailable reads what an observer gets without waiting.
func readAvailable(t *testing.T, l *Log, afterSeq uint64) reading {
	t.Helper()
	r := must[*Reader](t)(l.NewReader(afterSeq))
	defer r.Close()
	return readRest(t, r)
}

func readRest(t *testing.T, r *Reader) (got reading) {
	t.Helper()
	for {
		b, ok, err := r.TryNext(0)
		if err != nil && err != io.EOF {
			t.Fatal(err)
		}
		if !ok {
			return got
		}
		if b.Gap != nil {
			got.gaps = append(got.gaps, *b.Gap)
		}
		for _, e := range b.Events {
			got.data = append(got.data, e.Data...)
		}
	}
}

func TestFiles_UnownedOutput_IsComplete(t *testing.T) {
	files := newFiles(t, 64<<20, 64<<20)
	l := discardAtEnd(t, files.New(Limits{}))
	want := pattern(8 << 20)
	writeWaiting(t, l.Writer(Stdout), want)
	l.AppendExited()
	l.AppendClosed()
	if got := readAvailable(t, l, 0); len(got.gaps) > 0 || !bytes.Equal(got.data, want) {
		t.Errorf("got %d bytes and the gaps %+v, want %d bytes", len(got.data), got.gaps, len(want))
	}
	s := l.Stats()
	if s.FirstAvailableSeq != 1 || s.FileBytes+uint64(s.RetainedBytes) < uint64(len(want)) || s.HeldBytes > 2<<20 {
		t.Errorf("%+v", s)
	}
	// It continues from any seq, with an owner, too.
	half := s.LastSeq / 2
	from := readAvailable(t, l, half)
	if len(from.gaps) > 0 || !bytes.HasSuffix(want, from.data) || len(from.data) < len(want)/4 {
		t.Errorf("got %d bytes after event %d, and the gaps %+v", len(from.data), half, from.gaps)
	}
	o := must[*Owner](t)(l.Own(half))
	if n, _ := drain(t, o); n != len(from.data) {
		t.Errorf("an owner got %d bytes, an observer %d", n, len(from.data))
	}
	o.Release(false)
}

// An owner, also one in its grace period, keeps output from the disk.
func TestFiles_Owned_AreNotUsed(t *testing.T) {
	files := newFiles(t, 64<<20, 64<<20)
	l := discardAtEnd(t, files.New(Limits{RetainedBytes: 64 << 10}))
	o := must[*Owner](t)(l.Own(0))
	w := l.Writer(Stdout)
	total := 0
	for total < 1<<20 {
		n := flood(w, 1<<20)
		total += n
		if got, last := drain(t, o); got != n {
			t.Fatalf("got %d bytes of %d", got, n)
		} else if err := o.Acknowledge(last); err != nil {
			t.Fatal(err)
		}
	}
	flood(w, 1<<20)
	o.Release(true)
	if w.Buffer() != nil {
		t.Error("a writer is not blocked in the grace period")
	}
	if s := files.Stats(); s.Open != 0 {
		t.Errorf("%+v", s)
	}
	// What the owner has acknowledged does not go to the file, what it has not does.
	l.Free()
	writeWaiting(t, w, pattern(1<<20))
	got := readAvailable(t, l, 0)
	if len(got.gaps) != 1 || got.gaps[0].DroppedBytes != uint64(total) || got.gaps[0].Inexact {
		t.Errorf("gaps %+v, want one of the %d acknowledged bytes", got.gaps, total)
	}
}

func TestFiles_Limit_DropsOldest(t *testing.T) {
	for name, c := range map[string]struct {
		perLog, total int64
		cause         GapCause
	}{"of the log": {1 << 20, 4 << 20, Evicted}, "of all": {4 << 20, 1 << 20, FilesFull}, "zero": {0, 1 << 20, Evicted}} {
		t.Run(name, func(t *testing.T) {
			files := newFiles(t, c.perLog, c.total)
			l := discardAtEnd(t, files.New(Limits{RetainedBytes: 256 << 10}))
			want := pattern(5 << 20)
			writeWaiting(t, l.Writer(Stdout), want)
			if s := files.Stats(); s.Bytes > min(c.perLog, c.total) {
				t.Errorf("%+v", s)
			}
			got := readAvailable(t, l, 0)
			if len(got.gaps) != 1 || got.gaps[0].Inexact || got.gaps[0].Cause != c.cause ||
				got.gaps[0].DroppedBytes+uint64(len(got.data)) != uint64(len(want)) {
				t.Fatalf("got %d bytes and the gaps %+v", len(got.data), got.gaps)
			}
			least := min(c.perLog, c.total, 1<<20) + 64<<10
			if !bytes.HasSuffix(want, got.data) || int64(len(got.data)) < least {
				t.Errorf("got %d bytes, want the last %d", len(got.data), least)
			}
		})
	}
}

// Each log with a file holds a descriptor. Beyond their number logs have none, until one is given back.
func TestFiles_Number_IsBounded(t *testing.T) {
	files := newFiles(t, 64<<20, 64<<20)
	if files.most <= 0 {
		t.Errorf("%d files are possible", files.most)
	}
	files.most = 2
	var reported error
	files.report = func(err error) { reported = err }
	want := pattern(1 << 20)
	logs := make([]*Log, 3)
	for i := range logs {
		logs[i] = discardAtEnd(t, files.New(Limits{RetainedBytes: 128 << 10}))
		writeWaiting(t, logs[i].Writer(Stdout), want)
	}
	if s := files.Stats(); s.Open != 2 || reported != errFilesMany {
		t.Errorf("%+v, and %v was reported", s, reported)
	}
	if got := readAvailable(t, logs[1], 0); len(got.gaps) > 0 || !bytes.Equal(got.data, want) {
		t.Errorf("with a file: got %d bytes and the gaps %+v", len(got.data), got.gaps)
	}
	got := readAvailable(t, logs[2], 0)
	if len(got.gaps) != 1 || got.gaps[0].Cause != FilesFull || got.gaps[0].Inexact || got.gaps[0].DroppedBytes+uint64(len(got.data)) != 1<<20 {
		t.Errorf("without a file: got %d bytes and the gaps %+v", len(got.data), got.gaps)
	}
	logs[0].Discard()
	writeWaiting(t, logs[2].Writer(Stdout), want)
	if got := readAvailable(t, logs[2], 0); len(got.gaps) != 1 || len(got.data) < 1<<20 || files.Stats().Open != 2 {
		t.Errorf("after a file was given back: got %d bytes and the gaps %+v", len(got.data), got.gaps)
	}
}

// A log that gets no space has no file, which would take the place of another.
func TestFiles_NoSpace_LeavesNoFile(t *testing.T) {
	files := newFiles(t, 64<<20, 1)
	l := discardAtEnd(t, files.New(Limits{}))
	writeWaiting(t, l.Writer(Stdout), pattern(2<<20))
	if s := files.Stats(); s.Open != 0 || s.Failures == 0 {
		t.Errorf("%+v", s)
	}
}

func TestFiles_WriteFails_GapSaysWhy(t *testing.T) {
	for failure, cause := range map[error]GapCause{syscall.EIO: WriteFailed, syscall.ENOSPC: DiskFull} {
		t.Run(failure.Error(), func(t *testing.T) {
			files := newFiles(t, 64<<20, 64<<20)
			l := discardAtEnd(t, files.New(Limits{RetainedBytes: 128 << 10}))
			w := l.Writer(Stdout)
			want := pattern(3 << 20)
			reports := 0
			files.report = func(error) { reports++ }
			files.writeAt = func(*os.File, []byte, int64) (int, error) { return 0, failure }
			writeWaiting(t, w, want[:1<<20])
			if s := files.Stats(); s.Failures == 0 || reports != 1 || s.Bytes != 0 {
				t.Errorf("%+v", s)
			}
			files.writeAt = (*os.File).WriteAt
			writeWaiting(t, w, want[1<<20:])
			got := readAvailable(t, l, 0)
			if len(got.gaps) != 1 || got.gaps[0].Inexact || got.gaps[0].Cause != cause ||
				got.gaps[0].DroppedBytes+uint64(len(got.data)) != uint64(len(want)) || len(got.data) < 2<<20 {
				t.Errorf("got %d bytes and the gaps %+v", len(got.data), got.gaps)
			}
		})
	}
}

// A disk that is full in the middle leaves the newest output in what the file has.
func TestFiles_DiskFillsUp_KeepsNewest(t *testing.T) {
	files := newFiles(t, 64<<20, 64<<20)
	files.writeAt = func(f *os.File, data []byte, offset int64) (int, error) {
		if offset+int64(len(data)) > 1<<20 {
			return 0, syscall.ENOSPC
		}
		return f.WriteAt(data, offset)
	}
	l := discardAtEnd(t, files.New(Limits{RetainedBytes: 128 << 10}))
	want := pattern(5 << 20)
	writeWaiting(t, l.Writer(Stdout), want)
	got := readAvailable(t, l, 0)
	if len(got.gaps) != 1 || got.gaps[0].Inexact || got.gaps[0].Cause != DiskFull || !bytes.HasSuffix(want, got.data) || len(got.data) < 1<<20 {
		t.Errorf("got %d bytes and the gaps %+v", len(got.data), got.gaps)
	}
}

func TestFiles_ReadFails_GapSaysWhy(t *testing.T) {
	files := newFiles(t, 64<<20, 64<<20)
	l := discardAtEnd(t, files.New(Limits{RetainedBytes: 128 << 10}))
	want := pattern(3 << 20)
	writeWaiting(t, l.Writer(Stdout), want)
	reads := 0
	files.readAt = func(f *os.File, data []byte, offset int64) (int, error) {
		switch reads++; reads % 5 {
		case 1:
			return 0, syscall.EIO
		case 2:
			return copy(data, "what is not a block"), nil
		}
		return f.ReadAt(data, offset)
	}
	got := readAvailable(t, l, 0)
	dropped := 0
	for _, gap := range got.gaps {
		dropped += int(gap.DroppedBytes)
		if gap.Inexact || gap.Cause != ReadFailed {
			t.Errorf("%+v", gap)
		}
	}
	if len(got.gaps) < 5 || dropped+len(got.data) != len(want) {
		t.Errorf("got %d bytes and gaps of %d, want %d", len(got.data), dropped, len(want))
	}
}

func TestFiles_Directory(t *testing.T) {
	directory := t.TempDir() + "/made/when needed"
	files := NewFiles(directory, nil)
	files.SetLimits(1<<20, 1<<20)
	l := files.New(Limits{RetainedBytes: 64 << 10})
	writeWaiting(t, l.Writer(Stdout), pattern(300_000))
	if names, err := os.ReadDir(directory); err != nil || len(names) > 0 {
		t.Errorf("%v, %v: want a directory without names", names, err)
	}
	if info, err := os.Stat(directory); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	l.Discard()
	if err := files.Check(); err != nil {
		t.Error(err)
	}
	if err := NewFiles("/proc/none", nil).Check(); err == nil {
		t.Error("a directory that cannot be created is accepted")
	}
}

// A reader that has begun gets everything, also if the log is discarded.
func TestLog_Discard_ReaderGetsAll(t *testing.T) {
	files := newFiles(t, 64<<20, 64<<20)
	l := files.New(Limits{RetainedBytes: 128 << 10})
	want := pattern(3 << 20)
	writeWaiting(t, l.Writer(Stdout), want)
	r := must[*Reader](t)(l.NewReader(0))
	l.Discard()
	if got := readRest(t, r); len(got.gaps) > 0 || !bytes.Equal(got.data, want) {
		t.Errorf("got %d bytes and the gaps %+v", len(got.data), got.gaps)
	}
	if files.Stats().Open != 1 {
		t.Error("the file was closed")
	}
	r.Close()
	if s := files.Stats(); s.Open != 0 || s.Bytes != 0 {
		t.Errorf("%+v", s)
	}
	writeWaiting(t, l.Writer(Stdout), want) // there is no file for it
	if got := readAvailable(t, l, 0); len(got.gaps) != 1 {
		t.Errorf("%+v", got.gaps)
	}
}

func TestRestore_StateOfNoFile_Fails(t *testing.T) {
	for name, file := range map[string]FileState{
		"a future event":      {Next: 3},
		"a ring end":          {Next: 1, RingEnd: 1},
		"a block outside":     {Next: 2, Size: 10, Blocks: []FileBlock{{FirstSeq: 1, Events: 1, Bytes: 1, Size: 11}}},
		"an empty block":      {Next: 2, Size: 10, Blocks: []FileBlock{{FirstSeq: 1, Bytes: 1, Size: 1}}},
		"a block twice":       {Next: 2, Size: 10, Blocks: []FileBlock{{FirstSeq: 1, Events: 1, Size: 1}, {FirstSeq: 1, Events: 1, Size: 1}}},
		"an event not stored": {Next: 1, Size: 10, Blocks: []FileBlock{{FirstSeq: 1, Events: 1, Size: 1}}},
	} {
		state := State{Events: []Event{{Seq: 1, Kind: Output, Stream: Stdout, Data: []byte("a")}}, Streams: []StreamState{{Stream: Stdout, Total: 1}}}
		state.File = &file
		if _, err := NewFiles("", nil).Restore(&state); err == nil {
			t.Errorf("a log with %s was restored", name)
		}
	}
}

// Writers and readers at once, with a ring that overwrites what readers are reading, and a disk
// that fails.
func TestFiles_ConcurrentUse(t *testing.T) {
	for name, c := range map[string]struct {
		perLog int64
		fails  bool
	}{"complete": {64 << 20, false}, "small ring": {256 << 10, false}, "failing": {1 << 20, true}} {
		t.Run(name, func(t *testing.T) {
			files := newFiles(t, c.perLog, 64<<20)
			if c.fails {
				files.writeAt = func(f *os.File, data []byte, offset int64) (int, error) {
					if rand.IntN(3) == 0 {
						return 0, syscall.EIO
					}
					return f.WriteAt(data, offset)
				}
				files.readAt = func(f *os.File, data []byte, offset int64) (int, error) {
					if rand.IntN(3) == 0 {
						return 0, syscall.EIO
					}
					return f.ReadAt(data, offset)
				}
			}
			s := newStress(t, files, Limits{RetainedBytes: 64 << 10}, 3<<20)
			discardAtEnd(t, s.log)
			ctx := testContext(t)
			var all sync.WaitGroup
			for i := range 3 {
				all.Go(func() {
					if dropped := s.watch(ctx, uint64(i)); dropped > 0 && name == "complete" {
						s.Errorf("an observer misses %d bytes", dropped)
					}
				})
			}
			s.writeAll(ctx)
			all.Wait()
			if n := s.log.Stats().Readers; n != 0 {
				t.Errorf("%d readers remain", n)
			}
		})
	}
}
