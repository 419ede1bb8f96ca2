package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwire/execwire/integration/harness"
	"golang.org/x/sys/unix"
)

func TestPut_Stdin(t *testing.T) {
	server := harness.Serve(t)
	content := string(harness.RandomBytes(3 << 20))
	digest := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	for _, d := range harness.NetworkTransports {
		path := filepath.Join(t.TempDir(), "file")
		put := func(code int, text string, args ...string) {
			t.Helper()
			got := harness.Run(t, strings.NewReader(text), server.Remotely(d, "put", append(args, path)...)...)
			if got.Code != code || got.Stdout != "" || code == 0 && got.Stderr != "" {
				t.Errorf("put %q through %s: %+v, want %d", args, d, got, code)
			}
		}
		expect := func(text string, mode os.FileMode) {
			t.Helper()
			got, err := os.ReadFile(path)
			info, statErr := os.Stat(path)
			if err != nil || statErr != nil || string(got) != text || mode != 0 && info.Mode() != mode {
				t.Errorf("through %s it has %d bytes, %v, %v", d, len(got), err, info.Mode())
			}
		}
		put(0, content, "-n", "-m", "640")
		expect(content, 0o640)
		put(1, "other", "-n")
		put(1, "other", "--if-match", digest("other"))
		expect(content, 0o640)
		put(0, "second", "--if-match", digest(content), "--sync")
		expect("second", 0o640)
		inode := inodeOf(t, path)
		put(0, "", "--in-place")
		expect("", 0o640)
		if inodeOf(t, path) != inode {
			t.Errorf("--in-place made another file through %s", d)
		}
	}
}

func inodeOf(t testing.TB, path string) uint64 {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Ino
}
