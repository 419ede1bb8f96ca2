package syslimit

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// filePages returns how many bytes of files this process has in memory.
func filePages(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("RssFile:")); ok {
			size, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
			if err != nil {
				t.Fatal(err)
			}
			return size << 10
		}
	}
	t.Fatalf("no RssFile in %s", status)
	return 0
}

// mapped maps a private file of the given size.
func mapped(t *testing.T, size int) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a file")
	if err := os.WriteFile(path, bytes.Repeat([]byte("a"), size), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	data, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(data) })
	return data
}

// protect makes a mapping read-only, as code is.
func protect(t *testing.T, data []byte) {
	t.Helper()
	if err := unix.Mprotect(data, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
}

func TestReleaseProgram_ReleasesUnchangedPages(t *testing.T) {
	const size = 16 << 20
	data := mapped(t, size)
	protect(t, data)
	if n := bytes.Count(data, []byte("a")); n != size {
		t.Fatalf("%d bytes of %d are right", n, size)
	}
	before := filePages(t)
	ReleaseProgram()
	if after := filePages(t); before-after < size*9/10 {
		t.Errorf("%d bytes of files are in memory, %d were before", after, before)
	}
	if n := bytes.Count(data, []byte("a")); n != size {
		t.Errorf("%d bytes of %d are the same", n, size)
	}
}

func TestReleaseProgram_KeepsChangedPages(t *testing.T) {
	const size = 1 << 20
	data := mapped(t, size)
	copy(data[size/2:], "changed")
	protect(t, data)
	ReleaseProgram()
	if got := string(data[size/2 : size/2+8]); got != "changeda" {
		t.Errorf("a changed page has %q", got)
	}
}
