package history

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func record(principal, id string, minute int) *Record {
	return &Record{Principal: principal, ID: id, Argv: []string{"true"}, PID: 7, StartedAt: time.Date(2026, 11, 29, 8, minute, 0, 5, time.UTC)}
}

func open(t *testing.T, dir string, most int) (*Store, []Named, *bytes.Buffer) {
	t.Helper()
	log := new(bytes.Buffer)
	s, records, err := Open(dir, most, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, records, log
}

func put(t *testing.T, s *Store, name string, r *Record) {
	t.Helper()
	if err := s.Put(name, r); err != nil {
		t.Fatal(err)
	}
}

func TestOpen_ReturnsWhatWasPut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "processes")
	s, _, _ := open(t, dir, 10)
	full := record("tester", "p", 1)
	full.Digest, full.Labels, full.Keep, full.Rows, full.Columns, full.LastSeq = []byte{1, 2}, map[string]string{"k": "v"}, time.Hour, 24, 80, 9
	full.Exit = &Exit{Code: 3, Cause: "exited", WallTime: time.Second, ExitedAt: full.StartedAt, ClosedAt: full.StartedAt}
	full.Streams = []Stream{{ID: 1, Total: 5, Head: []byte("\xff12"), Tail: []byte("45")}}
	put(t, s, "a", record("tester", "p", 1))
	put(t, s, "a", full) // in place of the other
	put(t, s, "b", record("tester", "q", 2))
	put(t, s, "c", record("other", "q", 3))
	for range 2 { // it may be missing
		if err := s.Remove("b"); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := Open(dir, 10, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "used by another server") {
		t.Errorf("a second server opens it: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, records, log := open(t, dir, 10)
	if want := []Named{{"a", full}, {"c", record("other", "q", 3)}}; !reflect.DeepEqual(records, want) || log.Len() > 0 {
		t.Errorf("the records are %v, and the log is %s", records, log)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory is %v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "a.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
}

// What cannot be read is logged and left alone, and the rest is used.
func TestOpen_DamagedFiles_AreSkippedAndLogged(t *testing.T) {
	dir := t.TempDir()
	s, _, _ := open(t, dir, 10)
	put(t, s, "whole", record("tester", "p", 1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, "whole.json"))
	if err != nil {
		t.Fatal(err)
	}
	damaged := map[string][]byte{
		"empty": nil, "cut": whole[:len(whole)/2], "binary": {0, 1, 2}, "other": []byte(`{"ID": 5}`), "nothing": []byte(`{}`),
		"head":  bytes.Replace(whole, []byte(`"Streams":null`), []byte(`"Streams":[{"ID":1,"Total":1,"Head":"aGVhZA=="}]`), 1),
		"tail":  bytes.Replace(whole, []byte(`"Streams":null`), []byte(`"Streams":[{"ID":1,"Total":1,"Tail":"dGFpbA=="}]`), 1),
		"large": bytes.Repeat([]byte(" "), maxFileBytes+1),
	}
	for name, content := range damaged {
		if err := os.WriteFile(filepath.Join(dir, name+suffix), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("whole.json", filepath.Join(dir, "link.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "directory.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "unfinished.part"), whole, 0o600); err != nil {
		t.Fatal(err)
	}
	_, records, log := open(t, dir, 10)
	if len(records) != 1 || records[0].Name != "whole" {
		t.Errorf("the records are %v", records)
	}
	if lines := strings.Count(log.String(), "damaged"); lines != len(damaged)+2 {
		t.Errorf("%d of %d files are logged: %s", lines, len(damaged)+2, log)
	}
	for name := range damaged {
		if _, err := os.Stat(filepath.Join(dir, name+suffix)); err != nil || !strings.Contains(log.String(), name+suffix) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "unfinished.part")); err == nil {
		t.Error("a file that was not finished stays")
	}
}

// Each principal has a number of records, of which the oldest give way, also when the
// directory is opened with a lower number.
func TestPut_BeyondLimit_RemovesTheOldestOfThePrincipal(t *testing.T) {
	dir := t.TempDir()
	s, _, _ := open(t, dir, 3)
	put(t, s, "o", record("other", "o", 0))
	for i := range 5 {
		put(t, s, fmt.Sprint("p", i), record("tester", fmt.Sprint("p", i), i))
	}
	names := func(records []Named) (names []string) {
		for _, r := range records {
			names = append(names, r.Name)
		}
		return names
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, records, _ := open(t, dir, 3)
	if got := names(records); !slices.Equal(got, []string{"o", "p2", "p3", "p4"}) {
		t.Errorf("there are %v", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, records, _ = open(t, dir, 1)
	if got := names(records); !slices.Equal(got, []string{"o", "p4"}) {
		t.Errorf("of a lower limit there are %v", got)
	}
	if err := s.Remove("o"); err != nil || len(s.of) != 1 || len(s.names) != 1 {
		t.Errorf("%v; of %d principals %d names are known", err, len(s.of), len(s.names))
	}
}

func TestStore_ConcurrentCalls_KeepTheBound(t *testing.T) {
	dir := t.TempDir()
	s, _, _ := open(t, dir, 5)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 20 {
				name := fmt.Sprintf("p%d-%d", i, j)
				if err := s.Put(name, record("tester", name, j)); err != nil {
					t.Error(err)
				}
				if j%3 == 0 {
					if err := s.Remove(name); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, records, log := open(t, dir, 1000); len(records) > 5 || log.Len() > 0 {
		t.Errorf("there are %d records: %s", len(records), log)
	}
}
