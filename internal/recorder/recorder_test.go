package recorder_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/asciicast"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/recorder"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// fake is a process without a program.
type fake struct {
	log    *eventlog.Log
	output *eventlog.Writer

	cause process.Cause // of its end

	mu         sync.Mutex
	resizes    []process.Resize
	terminated chan struct{}
}

func newFake(limits eventlog.Limits) *fake {
	f := &fake{log: eventlog.New(limits), cause: process.CauseExited, terminated: make(chan struct{})}
	f.output = f.log.Writer(eventlog.Terminal)
	return f
}

func (f *fake) Log() *eventlog.Log { return f.log }
func (f *fake) Resizes(seq uint64) []process.Resize {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := 0
	for i, r := range f.resizes {
		if r.Seq <= seq {
			first = i
		}
	}
	return slices.Clone(f.resizes[first:])
}
func (f *fake) Exit() (process.ExitRecord, bool) {
	return process.ExitRecord{Code: 7, Cause: f.cause, ExitedAt: time.Now()}, true
}
func (f *fake) Terminate(context.Context, process.Termination) (process.TerminateResult, error) {
	close(f.terminated)
	return process.TerminateResult{}, nil
}

func (f *fake) write(text string) {
	for data := []byte(text); len(data) > 0; {
		n := copy(f.output.Buffer(), data)
		f.output.Commit(n, time.Now())
		data = data[n:]
	}
}

func (f *fake) resize(rows, columns uint16) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resizes = append(f.resizes, process.Resize{Seq: f.log.Stats().LastSeq, Size: process.WindowSize{Rows: rows, Cols: columns}, At: time.Now()})
}

func (f *fake) close() {
	f.log.AppendExited()
	f.log.AppendClosed()
}

func open(t *testing.T, change func(*recorder.Options)) (*recorder.Recorder, string) {
	t.Helper()
	o := recorder.Options{Directory: filepath.Join(t.TempDir(), "recordings"), FileBytes: 1 << 20, TotalBytes: 1 << 30, Failure: recorder.FailureRefuse}
	if change != nil {
		change(&o)
	}
	r, err := recorder.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r, o.Directory
}

var subject = recorder.Subject{Principal: "ci", Session: "default", Process: "a/b shell", Program: "bash", Size: process.WindowSize{Rows: 24, Cols: 80}}

func begin(t *testing.T, r *recorder.Recorder, p recorder.Process) {
	t.Helper()
	rec, err := r.Create(subject)
	if err != nil {
		t.Fatal(err)
	}
	rec.Begin(p)
}

// files returns the recordings in a directory, by name.
func files(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.cast"))
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(names, func(a, b string) int {
		return strings.Compare(strings.TrimSuffix(a, ".cast"), strings.TrimSuffix(b, ".cast"))
	})
	return names
}

// read returns the events of a recording as text, and all of its output.
func read(t *testing.T, path string) (events []string, output string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := asciicast.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatalf("%s: %v", content, err)
	}
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return events, output
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Code == asciicast.CodeOutput {
			output += e.Data
		}
		events = append(events, e.Code+" "+e.Data)
	}
}

// TestRecording_HasOutputSizesAndExit in the order in which they happened.
func TestRecording_HasOutputSizesAndExit(t *testing.T) {
	r, dir := open(t, nil)
	p := newFake(eventlog.Limits{})
	p.resize(24, 80)
	begin(t, r, p)
	p.write("one")
	p.resize(30, 100)
	p.write("two \xe2\x82") // half a rune
	p.write("\xac")
	p.resize(40, 100)
	p.close()
	r.Close()
	names := files(t, dir)
	if len(names) != 1 || !strings.HasSuffix(names[0], "-a_b_shell.cast") {
		t.Fatalf("files %v", names)
	}
	got, _ := read(t, names[0])
	want := []string{"o one", "r 100x30", "o two ", "o €", "r 100x40", "m exit status 7"}
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	for path, mode := range map[string]os.FileMode{names[0]: 0o600, dir: 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s has mode %v (%v), want %v", path, info.Mode(), err, mode)
		}
	}
	if stats := r.Stats(); stats.Begun != 1 || stats.Failed != 0 || stats.Bytes == 0 {
		t.Errorf("stats %+v", stats)
	}
}

// TestRecording_FallsBehind_HasAMarker where output was evicted before it was read.
func TestRecording_FallsBehind_HasAMarker(t *testing.T) {
	r, dir := open(t, nil)
	p := newFake(eventlog.Limits{RetainedBytes: 64 << 10})
	rec, err := r.Create(subject)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		p.write(strings.Repeat("x", 10<<10))
	}
	p.close()
	rec.Begin(p)
	r.Close()
	events, output := read(t, files(t, dir)[0])
	if !strings.HasSuffix(events[0], " bytes of output are missing") || len(output) == 0 || len(output) >= 1000<<10 {
		t.Errorf("the first event is %s, and there are %d bytes", events[0], len(output))
	}
}

// TestRecording_BeyondFileBytes_GoesOnInAnotherFile and nothing is lost between them.
func TestRecording_BeyondFileBytes_GoesOnInAnotherFile(t *testing.T) {
	r, dir := open(t, func(o *recorder.Options) { o.FileBytes = 100 << 10 })
	p := newFake(eventlog.Limits{RetainedBytes: 4 << 20})
	begin(t, r, p)
	text := strings.Repeat("0123456789€", 50<<10) // runes are torn somewhere
	p.write(text)
	p.resize(50, 50)
	p.write("end")
	p.close()
	r.Close()
	names, all := files(t, dir), ""
	for i, name := range names {
		events, output := read(t, name)
		all += output
		info, err := os.Stat(name)
		if err != nil || info.Size() > 300<<10 {
			t.Errorf("%s has %d bytes, %v", name, info.Size(), err)
		}
		if last := events[len(events)-1]; i < len(names)-1 && last != "m goes on in "+filepath.Base(names[i+1]) {
			t.Errorf("%s ends with %s", name, last)
		}
	}
	if len(names) < 3 || all != text+"end" {
		t.Errorf("%d files with %d bytes, want %d", len(names), len(all), len(text)+3)
	}
}

// TestLost_HasNoExitStatus: nobody knows it.
func TestLost_HasNoExitStatus(t *testing.T) {
	r, dir := open(t, nil)
	p := newFake(eventlog.Limits{})
	p.cause = process.CauseLost
	begin(t, r, p)
	p.close()
	r.Close()
	if events, _ := read(t, files(t, dir)[0]); !slices.Equal(events, []string{"m the exit status is not known"}) {
		t.Errorf("events %q", events)
	}
}

// TestTotalBytes_Refuses starts, and ends what runs, until files are moved away.
func TestTotalBytes_Refuses(t *testing.T) {
	r, dir := open(t, func(o *recorder.Options) { o.TotalBytes = 1 << 20 })
	p := newFake(eventlog.Limits{RetainedBytes: 4 << 20})
	begin(t, r, p)
	p.write(strings.Repeat("x", 2<<20))
	<-p.terminated
	p.close()
	_, err := r.Create(subject)
	var refused *recorder.Error
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "recording_bytes_total") || !strings.Contains(err.Error(), dir) {
		t.Errorf("another recording: %v", err)
	}
	events, _ := read(t, files(t, dir)[0])
	if last := events[len(events)-1]; last != "m the recording ends here: it cannot be written" {
		t.Errorf("it ends with %s", last)
	}
	if stats := r.Stats(); stats.Failed != 2 {
		t.Errorf("stats %+v", stats)
	}
	if left := files(t, dir); len(left) != 1 {
		t.Errorf("files %v", left)
	}
	again, err := recorder.Open(recorder.Options{Directory: dir, FileBytes: 1 << 20, TotalBytes: 10 << 10})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Create(subject); err == nil {
		t.Error("a recorder does not count what is there when it begins")
	}
}

// TestFailure_Drop counts the loss and lets the process go on.
func TestFailure_Drop(t *testing.T) {
	r, _ := open(t, func(o *recorder.Options) { o.Directory, o.Failure = "", recorder.FailureDrop })
	rec, err := r.Create(subject)
	if rec != nil || err != nil {
		t.Errorf("without a directory: %v, %v", rec, err)
	}
	rec.Begin(newFake(eventlog.Limits{})) // nothing
	rec.Cancel()
	r, _ = open(t, func(o *recorder.Options) { o.TotalBytes, o.Failure = 1<<20, recorder.FailureDrop })
	p := newFake(eventlog.Limits{RetainedBytes: 4 << 20})
	begin(t, r, p)
	p.write(strings.Repeat("x", 2<<20))
	p.close()
	r.Close()
	select {
	case <-p.terminated:
		t.Error("the process was terminated")
	default:
	}
	if stats := r.Stats(); stats.Failed != 1 {
		t.Errorf("stats %+v", stats)
	}
}

// TestFullDisk_LeavesAValidRecording: a device that is always full.
func TestFullDisk_LeavesAValidRecording(t *testing.T) {
	r, dir := open(t, nil)
	p := newFake(eventlog.Limits{})
	rec, err := r.Create(subject)
	if err != nil {
		t.Fatal(err)
	}
	recorder.SetFile(rec, "/dev/full")
	rec.Begin(p)
	p.write("text")
	<-p.terminated
	p.close()
	r.Close()
	if events, _ := read(t, files(t, dir)[0]); len(events) != 0 {
		t.Errorf("events %q", events)
	}
}

// TestCancel_RemovesTheFile of a process that was not started.
func TestCancel_RemovesTheFile(t *testing.T) {
	r, dir := open(t, nil)
	rec, err := r.Create(subject)
	if err != nil {
		t.Fatal(err)
	}
	rec.Cancel()
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("files %v", left)
	}
}

// TestOpen_RefusesADirectoryOfOthers, whose files could be replaced.
func TestOpen_RefusesADirectoryOfOthers(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := recorder.Open(recorder.Options{Directory: dir}); err == nil || !strings.Contains(err.Error(), "chmod 700 "+dir) {
		t.Errorf("opened: %v", err)
	}
}

// Readers that come after the start of a process do not take the reader of its recording.
func TestBegin_HasItsReaderAtOnce(t *testing.T) {
	r, dir := open(t, nil)
	for range 50 {
		p := newFake(eventlog.Limits{MaxReaders: 1})
		begin(t, r, p)
		if reader, err := p.log.NewReader(0); err == nil {
			t.Error("a client has the reader of the recording")
			reader.Close()
		}
		p.close()
	}
	r.Close()
	if stats := r.Stats(); stats.Failed != 0 || len(files(t, dir)) != 50 {
		t.Errorf("%+v of 50 recordings", stats)
	}
}

// TestHold_GoesOn in this program or in another one, without a byte lost or written twice.
func TestHold_GoesOn(t *testing.T) {
	r, dir := open(t, nil)
	p := newFake(eventlog.Limits{})
	begin(t, r, p)
	p.write("one \xe2")
	awaitOutput(t, dir, "one ")
	if states := r.Hold(); len(states) != 1 {
		t.Fatalf("states %+v", states)
	}
	r.Resume()
	p.write("\x82\xac two \xe2\x82")
	awaitOutput(t, dir, "€ two ")
	states := r.Hold()
	p.write("\xac three") // while nobody reads
	next, err := recorder.Open(recorder.Options{Directory: dir, FileBytes: 1 << 20, TotalBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	next.Restore(states, func(of recorder.Subject) (recorder.Process, error) {
		if of.Process != subject.Process || of.Principal != subject.Principal {
			t.Errorf("subject %+v", of)
		}
		return p, nil
	})
	p.close()
	next.Close()
	got, output := read(t, files(t, dir)[0])
	if output != "one € two € three" || !slices.Contains(got, "m the server was upgraded") || got[len(got)-1] != "m exit status 7" {
		t.Errorf("events %q", got)
	}
}

// TestRestore_WithoutItsFile_Terminates, because nothing records the process.
func TestRestore_WithoutItsFile_Terminates(t *testing.T) {
	r, dir := open(t, nil)
	p := newFake(eventlog.Limits{})
	begin(t, r, p)
	states := r.Hold()
	if err := os.WriteFile(files(t, dir)[0], nil, 0o600); err != nil {
		t.Fatal(err)
	}
	next, err := recorder.Open(recorder.Options{Directory: dir, FileBytes: 1 << 20, TotalBytes: 1 << 30, Failure: recorder.FailureRefuse})
	if err != nil {
		t.Fatal(err)
	}
	next.Restore(states, func(recorder.Subject) (recorder.Process, error) { return p, nil })
	<-p.terminated
	next.Close()
	if stats := next.Stats(); stats.Failed != 1 {
		t.Errorf("stats %+v", stats)
	}
}

// awaitOutput waits until a recording has a text.
func awaitOutput(t *testing.T, dir, text string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		if _, output := read(t, files(t, dir)[0]); strings.Contains(output, text) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("there is no %q", text)
		}
		time.Sleep(time.Millisecond)
	}
}
