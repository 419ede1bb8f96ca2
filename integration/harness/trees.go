package harness

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// RandomBytes returns n random bytes.
func RandomBytes(n int) []byte {
	b := make([]byte, n)
	chacha := rand.NewChaCha8([32]byte{byte(rand.Int()), byte(rand.Int())})
	_, _ = chacha.Read(b)
	return b
}

// FileTree creates files, and directories for names that end with a slash.
func FileTree(t testing.TB, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
