package gateway

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/execwire/execwire/internal/testrace"
)

func TestWalk(t *testing.T) {
	options := func(depth, directories, entries int, follow, prune bool) string {
		return fmt.Sprintf(`"options":{"maxDepth":%d,"maxDirectories":%d,"maxEntries":%d,"followDirectorySymlinks":%v,"pruneHiddenDirectories":%v}}`,
			depth, directories, entries, follow, prune)
	}
	entries := func(truncated bool, errs string, list ...string) string {
		var items []string
		for _, e := range list {
			kind := "file"
			if name, ok := strings.CutSuffix(e, "/"); ok {
				kind, e = "directory", name
			}
			items = append(items, fmt.Sprintf(`{"path":"T/%s","kind":"%s"}`, e, kind))
		}
		return fmt.Sprintf(`{"entries":[%s],"errors":[%s],"truncated":%v}`, strings.Join(items, ","), errs, truncated)
	}
	top := []string{"d/.h", "d/.hid/", "d/a", "d/sub/"}
	const tooMuch = "-32600 fs/walk %s must be at most %d"
	checkCalls(t, func(dir string) {
		do(t, os.MkdirAll(dir+"/d/sub", 0o755), os.Mkdir(dir+"/d/.hid", 0o755), os.WriteFile(dir+"/d/.hid/x", nil, 0o644), os.WriteFile(dir+"/d/.h", nil, 0o644),
			os.WriteFile(dir+"/d/a", nil, 0o644), os.WriteFile(dir+"/d/sub/b", nil, 0o644), os.Symlink("sub", dir+"/d/ld"), os.Symlink("a", dir+"/d/lf"),
			os.Symlink("nowhere", dir+"/d/dang"), syscall.Mkfifo(dir+"/d/fifo", 0o644), os.WriteFile(dir+"/f", nil, 0o644))
	}, []literalCall{
		{"fs/walk", `{"path":"T/d","sandbox":null,` + options(10, 100, 1000, false, false), entries(false, "", append(top, "d/.hid/x", "d/sub/b")...)},
		{"fs/walk", `{"path":"T/d",` + options(10, 100, 1000, true, true), entries(false, "", "d/.h", "d/.hid/", "d/a", "d/ld/", "d/sub/", "d/ld/b")},
		{"fs/walk", `{"path":"T/d",` + options(10, 100, 2, false, false), entries(true, "", "d/.h", "d/.hid/")},
		{"fs/walk", `{"path":"T/d",` + options(0, 100, 1000, false, false), entries(false, "", top...)},
		{"fs/walk", `{"path":"T/d",` + options(10, 2, 1000, false, false), entries(true, "", append(top, "d/.hid/x")...)},
		{"fs/walk", `{"path":"T/d",` + options(10, 0, 0, false, false), entries(true, "")},
		{"fs/walk", `{"path":"T/f",` + options(10, 100, 1000, false, false), entries(false, "")},
		{"fs/walk", `{"path":"T/f/x",` + options(10, 100, 1000, false, false), noDir},
		{"fs/walk", `{"path":"T/none",` + options(10, 100, 1000, false, false), missing},
		{"fs/walk", `{"path":"T/d","options":{"maxDepth":0,"maxDirectories":1,"maxEntries":1}}`, entries(true, "", "d/.h")},
		{"fs/walk", `{"path":"T/d","options":{}}`, "-32602 missing field `maxDepth`"},
		{"fs/walk", `{"path":"T/d"}`, "-32602 missing field `options`"},
		{"fs/walk", `{"path":"T/d",` + options(65, 1, 1, false, false), fmt.Sprintf(tooMuch, "maxDepth", 64)},
		{"fs/walk", `{"path":"T/d",` + options(1, 10_001, 1, false, false), fmt.Sprintf(tooMuch, "maxDirectories", 10_000)},
		{"fs/walk", `{"path":"T/d",` + options(1, 1, 50_001, false, false), fmt.Sprintf(tooMuch, "maxEntries", 50_000)},
	})
	cl, _ := newTestServer(t).attach("")
	dir := t.TempDir()
	do(t, os.WriteFile(dir+"/a", nil, 0o644), os.WriteFile(dir+"/\xff", nil, 0o644))
	all := map[string]any{"maxDepth": 1, "maxDirectories": 9, "maxEntries": 9}
	for path, wrong := range map[string]string{dir: dir + "/\uFFFD", "file://" + dir: "file://" + dir + "/%FF"} {
		got := string(cl.must("fs/walk", map[string]any{"path": path, "options": all}))
		want := fmt.Sprintf(`{"entries":[{"path":"%s/a","kind":"file"}],"errors":[{"path":"%s","message":"file name is not valid UTF-8"}],"truncated":false}`, path, wrong)
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A response has the size of the reference's, whatever the length of the names.
func TestWalk_ResponseBytesAreBounded(t *testing.T) {
	testrace.WithoutRace(t)
	cl, _ := newTestServer(t).attach("")
	dir := t.TempDir() + "/" + strings.Repeat("d", 250) + "/" + strings.Repeat("d", 250) + "/" + strings.Repeat("d", 250)
	do(t, os.MkdirAll(dir, 0o755))
	const files = 5000
	for i := range files {
		do(t, os.WriteFile(fmt.Sprintf("%s/%04d", dir, i), nil, 0o600))
	}
	var got struct {
		Entries   []struct{ Path string }
		Truncated bool
	}
	cl.decode(cl.must("fs/walk", map[string]any{"path": dir, "options": map[string]any{"maxDepth": 1, "maxDirectories": 9, "maxEntries": 50_000}}), &got)
	if want := (4 << 20) / (64 + len(dir) + 5); len(got.Entries) != want || !got.Truncated {
		t.Errorf("%d entries (truncated: %v), want %d", len(got.Entries), got.Truncated, want)
	}
}
