package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The last records are those of the newest files, in order, within both bounds.
func TestLast_ReadsRotatedFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, err := Open(Options{File: path, MaxBytes: 1000, Keep: 100})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	if got, err := l.Last(10, 1<<20); err != nil || len(got) != 0 {
		t.Errorf("a new log has %q, %v", got, err)
	}
	const records = 60
	for i := range records {
		l.Write(&Record{Type: Notice, Action: "test", Process: fmt.Sprintf("p%02d", i)})
	}
	if _, err := os.Stat(path + ".3"); err != nil {
		t.Fatal("the log was not rotated")
	}
	expect := func(got []string, err error, first, count int) {
		t.Helper()
		if err != nil || len(got) != count {
			t.Fatalf("%d records, %v, want %d", len(got), err, count)
		}
		for i, line := range got {
			if !strings.Contains(line, fmt.Sprintf(`"process":"p%02d"`, first+i)) {
				t.Errorf("record %d is %s", first+i, line)
			}
		}
	}
	got, err := l.Last(1000, 1<<20)
	expect(got, err, 0, records)
	got, err = l.Last(3, 1<<20)
	expect(got, err, records-3, 3)
	// A part of a record is none.
	size := int64(len(got[0])) + 1
	got, err = l.Last(1000, 5*size/2)
	expect(got, err, records-2, 2)
	// What a crash leaves is no record, and a file that another program has renamed is missing.
	if err := os.WriteFile(path, []byte("{\"version\":1,\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err = l.Last(1, 1<<20)
	if err != nil || len(got) != 1 {
		t.Errorf("%q, %v", got, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got, err = l.Last(1, 1<<20); err != nil || len(got) != 1 {
		t.Errorf("%q, %v", got, err)
	}
	if err := os.Chmod(path+".1", 0); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 { // root reads every file
		if _, err := l.Last(1, 1<<20); err == nil {
			t.Error("a file that cannot be read is no error")
		}
	}
}
