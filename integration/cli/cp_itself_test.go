package cli

import (
	"errors"
	"github.com/execwire/execwire/integration/harness"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A copy of a directory into itself ends, copies what was there at the beginning, and reports
// what it leaves out, in both directions.
func TestCopy_DirectoryIntoItself_IsRejected(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range []harness.Transport{harness.UnixTransport, harness.TCPTransport, harness.WebsocketTransport} {
		for _, upload := range []bool{true, false} {
			here, there, options := "", ":", "-rT"
			if !upload {
				here, there = ":", ""
			}
			if upload && d == harness.WebsocketTransport {
				options += " --in-place"
			}
			for _, tt := range []struct {
				from, to string
				code     int
				want     []string
			}{
				// Into a new directory far below the directory itself, and into an existing one.
				{"a", "a/b/c", 1, []string{"a", "a/b", "a/b/c", "a/b/c/b", "a/b/c/f", "a/b/old", "a/b/old/g", "a/b/c/b/old", "a/b/c/b/old/g", "a/f"}},
				{"a", "a/new", 0, []string{"a", "a/b", "a/b/old", "a/b/old/g", "a/f", "a/new", "a/new/b", "a/new/b/old", "a/new/b/old/g", "a/new/f"}},
				{"a", "a/b", 1, []string{"a", "a/b", "a/b/f", "a/b/old", "a/b/old/g", "a/f"}},
			} {
				dir := harness.FileTree(t, map[string]string{"a/f": "1", "a/b/old/g": "2"})
				args := append(strings.Fields(options), here+dir+"/"+tt.from, there+dir+"/"+tt.to)
				got := harness.Run(t, nil, server.Remotely(d, "cp", args...)...)
				said := strings.Contains(got.Stderr, "the destination is inside the source: choose another destination")
				if got.Code != tt.code || said != (tt.code != 0) {
					t.Errorf("cp %q through %s: %+v", args, d, got)
				}
				if names := namesBelow(t, dir+"/a"); !slices.Equal(names, slices.Sorted(slices.Values(tt.want))) {
					t.Errorf("cp %q through %s: there are %q", args, d, names)
				}
			}
		}
	}
}

// namesBelow lists a directory and its content, relative to its parent.
func namesBelow(t testing.TB, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(filepath.Dir(dir), path)
		names = append(names, name)
		return errors.Join(err, relErr)
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// Existing directories with the same name as the new one are copied too.
func TestCopy_SameNames(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		for _, upload := range []bool{true, false} {
			here, there := "", ":"
			if !upload {
				here, there = ":", ""
			}
			src := harness.FileTree(t, map[string]string{"src/src/src/f": "1", "src/a/src/g": "2", "src/a/b/a/b/h": "3", "src/merged/x/merged/": ""})
			dest := harness.FileTree(t, map[string]string{"merged/a/": ""})
			server.ExpectCommand(t, d, harness.Result{}, "cp", "-r", here+src+"/src", there+dest)
			expectSameTree(t, "new", dest+"/src", src+"/src", false)
			server.ExpectCommand(t, d, harness.Result{}, "cp", "-r", here+src+"/src/.", there+dest+"/merged")
			expectSameTree(t, "merged", dest+"/merged", src+"/src", false)
		}
	}
}
