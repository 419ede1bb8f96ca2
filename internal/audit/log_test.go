package audit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/audit/audittest"
)

// opened is a log in a directory of its own.
type opened struct {
	*audit.Log
	t    *testing.T
	path string
}

func open(t *testing.T, change func(*audit.Options)) *opened {
	t.Helper()
	o := audit.Options{File: filepath.Join(t.TempDir(), "audit.log"), Argv: audit.ArgvFull, Sync: audit.SyncOff, Failure: audit.FailureRefuse}
	if change != nil {
		change(&o)
	}
	log, err := audit.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(log.Close)
	return &opened{log, t, o.File}
}

func (o *opened) intend(path string) {
	o.t.Helper()
	if err := o.Intend(&audit.Record{Action: "file.write", Call: o.NewCall(), Path: path}); err != nil {
		o.t.Fatal(err)
	}
}

// TestSchema_HasMembersOfRecords compares the schema with the type.
func TestSchema_HasMembersOfRecords(t *testing.T) {
	var schema struct{ Properties map[string]any }
	if err := json.Unmarshal([]byte(audit.Schema), &schema); err != nil {
		t.Fatal(err)
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[audit.Record]()) {
		if field.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if schema.Properties[name] == nil {
			t.Errorf("the schema lacks %q", name)
		}
		delete(schema.Properties, name)
	}
	if len(schema.Properties) > 0 {
		t.Errorf("records lack %v", schema.Properties)
	}
}

// TestRecord_HostileText_IsOneBoundedLine writes what callers choose.
func TestRecord_HostileText_IsOneBoundedLine(t *testing.T) {
	l := open(t, nil)
	for _, text := range []string{
		"a\nb\r\n{\"version\":1}", "\xff\xfe\x00\x01", "\u2028\u2029\u0085\x1b[2J", strings.Repeat("x", 3<<20), strings.Repeat("\x01", 3<<20), strings.Repeat("é", 3<<10),
	} {
		many := make([]string, 10_000)
		for i := range many {
			many[i] = text[:min(len(text), 100)]
		}
		for _, argv := range [][]string{{text}, many, {"", text, text}} {
			r := &audit.Record{Action: "process.start", Call: l.NewCall(), Path: text, To: text, Cwd: text, Process: text, Method: text, Rule: text, Description: text}
			r.Principal, r.Peer = text, text
			l.SetArgv(r, argv)
			if err := l.Intend(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	text, err := os.ReadFile(l.path)
	if err != nil {
		t.Fatal(err)
	}
	records := audittest.Parse(t, text)
	if len(records) != 18 {
		t.Fatalf("there are %d records", len(records))
	}
	for line := range bytes.Lines(text) {
		if len(line) > audit.MaxLine {
			t.Errorf("a line has %d bytes", len(line))
		}
	}
	if r := records[0]; r.Truncated || r.Argv[0] != "a\nb\r\n{\"version\":1}" || r.ArgvCount != 1 {
		t.Errorf("the first is %+v", r)
	}
	if r := records[10]; !r.Truncated || len(r.Argv) > 256 || r.ArgvCount != 10_000 || len(r.ArgvSHA256) != 64 {
		t.Errorf("one of many arguments has %d of %d", len(r.Argv), r.ArgvCount)
	}
}

// TestSetArgv_Settings records as much as the setting says.
func TestSetArgv_Settings(t *testing.T) {
	const sha = "8fb20ef63ced4145fc2e983ffe597d1dcff39154c3bf21f0fa9dde6a0c50fdc9" // printf 'a\0b\0' | sha256sum
	for setting, want := range map[string]audit.Record{
		audit.ArgvFull:   {Argv: []string{"a", "b"}, ArgvSHA256: sha, ArgvCount: 2},
		audit.ArgvDigest: {ArgvSHA256: sha, ArgvCount: 2},
		audit.ArgvOff:    {},
	} {
		var r audit.Record
		open(t, func(o *audit.Options) { o.Argv = setting }).SetArgv(&r, []string{"a", "b"})
		if !reflect.DeepEqual(r, want) {
			t.Errorf("%s: %+v, want %+v", setting, r, want)
		}
	}
}

// TestRotation_ConcurrentWriters_LosesNothing has more files than are needed, and a gap.
func TestRotation_ConcurrentWriters_LosesNothing(t *testing.T) {
	const writers, each = 8, 50
	l := open(t, func(o *audit.Options) { o.MaxBytes, o.Keep, o.Sync = 8<<10, 100, audit.SyncInterval })
	var done sync.WaitGroup
	for w := range writers {
		done.Go(func() {
			for i := range each {
				l.Write(&audit.Record{Type: audit.Notice, Action: "file.write", Path: fmt.Sprintf("/%d/%d", w, i)})
			}
		})
	}
	done.Wait()
	l.Close()
	files, err := filepath.Glob(l.path + "*")
	if err != nil || len(files) < 5 {
		t.Fatalf("%v: there are %q", err, files)
	}
	found := map[string]int{}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 || info.Size() > 8<<10 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
		for _, r := range audittest.Read(t, file) {
			found[r.Path]++
		}
	}
	if len(found) != writers*each {
		t.Errorf("%d records of %d are there", len(found), writers*each)
	}
	if s := l.Stats(); s.Written != writers*each || s.Dropped != 0 {
		t.Errorf("the numbers are %+v", s)
	}
}

// TestRotation_KeepsNewest keeps the configured number of files, the newest first.
func TestRotation_KeepsNewest(t *testing.T) {
	l := open(t, func(o *audit.Options) { o.MaxBytes, o.Keep = 1, 2 })
	for i := range 5 {
		l.intend(fmt.Sprint(i))
	}
	for suffix, want := range map[string]string{"": "4", ".1": "3", ".2": "2"} {
		if records := audittest.Read(t, l.path+suffix); len(records) != 1 || records[0].Path != want {
			t.Errorf("%q has %+v, want %s", suffix, records, want)
		}
	}
	if _, err := os.Stat(l.path + ".3"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a third: %v", err)
	}
}

// TestOpen_TornLine_BeginsNewOne follows a crash in the middle of a line.
func TestOpen_TornLine_BeginsNewOne(t *testing.T) {
	l := open(t, func(o *audit.Options) {
		if err := os.WriteFile(o.File, []byte(`{"version":1,"ti`), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	l.intend("/a")
	l.intend("/b")
	text, err := os.ReadFile(l.path)
	if err != nil {
		t.Fatal(err)
	}
	torn, rest, _ := bytes.Cut(text, []byte("\n"))
	if string(torn) != `{"version":1,"ti` || len(audittest.Parse(t, rest)) != 2 {
		t.Errorf("the file is %s", text)
	}
}

// TestOpen_Refusals names the file, the problem and the fix.
func TestOpen_Refusals(t *testing.T) {
	l := open(t, nil)
	dir := t.TempDir()
	shared := filepath.Join(dir, "shared")
	if err := errors.Join(os.WriteFile(shared, nil, 0o600), os.Chmod(shared, 0o620)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		l.path: "is in use by another program", shared: "chmod 600 " + shared, "/dev/null": "is not a regular file", dir: "cannot be opened", dir + "/no/file": "cannot be opened",
	} {
		_, err := audit.Open(audit.Options{File: path})
		if typed := new(audit.Error); !errors.As(err, &typed) || typed.File != path || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// TestReopen_FollowsRename lets another program rotate the file.
func TestReopen_FollowsRename(t *testing.T) {
	l := open(t, nil)
	l.intend("/a")
	if err := l.Reopen(); err != nil { // nothing has happened
		t.Fatal(err)
	}
	l.intend("/b")
	if err := os.Rename(l.path, l.path+"-old"); err != nil {
		t.Fatal(err)
	}
	l.intend("/c")
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	l.intend("/d")
	if old, now := audittest.Read(t, l.path+"-old"), audittest.Read(t, l.path); len(old) != 3 || len(now) != 1 || now[0].Path != "/d" {
		t.Errorf("the old file has %d records, the new one %+v", len(old), now)
	}
}

// TestDeny_IsBounded counts what one source sends too much of, which costs no other one.
func TestDeny_IsBounded(t *testing.T) {
	l := open(t, nil)
	for range 2000 { // the clock may pass a second, or two
		l.Deny(&audit.Record{Action: "authenticate", Rule: "token invalid", Status: "Unauthenticated"}, "flood")
	}
	l.Deny(&audit.Record{Action: "authenticate", Rule: "token invalid", Status: "Unauthenticated", Path: "/other"}, "other")
	l.intend("/a")
	var written, omitted uint64
	other := false
	for _, r := range audittest.Read(t, l.path) {
		if r.Type == audit.Denied {
			written++
		}
		other = other || r.Path == "/other"
		omitted += r.Suppressed
	}
	if !other || omitted == 0 || written+omitted != 2001 || l.Stats().Suppressed != omitted {
		t.Errorf("%d are written and %d counted; the other one is there: %v", written, omitted, other)
	}
}

// TestIntend_Closed_FollowsPolicy cannot write.
func TestIntend_Closed_FollowsPolicy(t *testing.T) {
	for failure, refused := range map[string]bool{audit.FailureRefuse: true, audit.FailureDrop: false} {
		l := open(t, func(o *audit.Options) { o.Failure = failure })
		l.Close()
		err := l.Intend(&audit.Record{Action: "file.write"})
		if (err != nil) != refused || l.Stats().Dropped != 1 {
			t.Errorf("%s: %v, %+v", failure, err, l.Stats())
		}
	}
}

// TestSyncEach_ConcurrentWriters_LosesNothing rotates while others wait for the disk.
func TestSyncEach_ConcurrentWriters_LosesNothing(t *testing.T) {
	l := open(t, func(o *audit.Options) { o.MaxBytes, o.Keep, o.Sync = 1<<10, 100, audit.SyncEach })
	var done sync.WaitGroup
	for range 4 {
		done.Go(func() {
			for range 5 {
				if err := l.Intend(&audit.Record{Action: "file.write", Call: l.NewCall()}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done.Wait()
	if s := l.Stats(); s.Written != 20 || s.Dropped != 0 {
		t.Errorf("the numbers are %+v", s)
	}
}

// TestURL_HasNoSecrets keeps where a request goes.
func TestURL_HasNoSecrets(t *testing.T) {
	for raw, want := range map[string]string{
		"https://user:secret@example.org:8443/a/b?token=secret#secret": "https://example.org:8443/a/b",
		"http://example.org":     "http://example.org",
		"http://[::1]:80/x?":     "http://[::1]:80/x",
		"mailto:secret@a":        "",
		"http://a/\x00secret%zz": "",
	} {
		if got := audit.URL(raw); got != want {
			t.Errorf("%q: %q, want %q", raw, got, want)
		}
	}
}

func BenchmarkIntend(b *testing.B) {
	log, err := audit.Open(audit.Options{File: filepath.Join(b.TempDir(), "audit.log"), Argv: audit.ArgvFull, Sync: audit.SyncInterval})
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	for b.Loop() {
		r := &audit.Record{Action: "process.start", Call: log.NewCall(), Process: "9b2a0960-985c-42b7-bb3c-552b65bc82bf", Rule: "permission start"}
		log.SetArgv(r, []string{"sh", "-c", "echo hello"})
		if log.Intend(r) != nil {
			b.Fatal("it is refused")
		}
	}
}

// TestDocument_ExamplesAreValid checks the records in docs/audit.md.
func TestDocument_ExamplesAreValid(t *testing.T) {
	document, err := os.ReadFile("../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(document, []byte("```json\n"))
	examples, _, _ := bytes.Cut(rest, []byte("```\n"))
	if records := audittest.Parse(t, examples); len(records) != 4 {
		t.Errorf("there are %d examples", len(records))
	}
	for _, member := range []string{"version", "decision", "rule", "call", "suppressed", "truncated", "took_over", "api"} {
		if !bytes.Contains(document, []byte("`"+member+"`")) {
			t.Errorf("the document does not mention %s", member)
		}
	}
}
