package integration

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A copy into what is copied ends, with what was there at the beginning, and says what
// it leaves out, whichever end is the server.
func TestDirectoriesAreNotCopiedIntoThemselves(t *testing.T) {
	server := serve(t)
	for _, d := range []door{unixDoor, tcpDoor, websocketDoor} {
		for _, upload := range []bool{true, false} {
			here, there, options := "", ":", "-rT"
			if !upload {
				here, there = ":", ""
			}
			if upload && d == websocketDoor {
				options += " --in-place"
			}
			for _, tt := range []struct {
				from, to string
				code     int
				want     []string
			}{
				// Into a new directory far below, in the directory itself, and into one
				// that was there.
				{"a", "a/b/c", 1, []string{"a", "a/b", "a/b/c", "a/b/c/b", "a/b/c/f", "a/b/old", "a/b/old/g", "a/b/c/b/old", "a/b/c/b/old/g", "a/f"}},
				{"a", "a/new", 0, []string{"a", "a/b", "a/b/old", "a/b/old/g", "a/f", "a/new", "a/new/b", "a/new/b/old", "a/new/b/old/g", "a/new/f"}},
				{"a", "a/b", 1, []string{"a", "a/b", "a/b/f", "a/b/old", "a/b/old/g", "a/f"}},
			} {
				dir := fileTree(t, map[string]string{"a/f": "1", "a/b/old/g": "2"})
				args := append(strings.Fields(options), here+dir+"/"+tt.from, there+dir+"/"+tt.to)
				got := run(t, nil, server.remotely(d, "cp", args...)...)
				said := strings.Contains(got.stderr, "the copy is in the directory that is copied: choose a place outside")
				if got.code != tt.code || said != (tt.code != 0) {
					t.Errorf("cp %q through %s: %+v", args, d, got)
				}
				if names := namesBelow(t, dir+"/a"); !slices.Equal(names, slices.Sorted(slices.Values(tt.want))) {
					t.Errorf("cp %q through %s: there are %q", args, d, names)
				}
			}
		}
	}
}

// namesBelow lists a directory and what is below it, relative to the one that it is in.
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

// Directories that have the name of what is made, wherever they are, are not taken for
// it.
func TestDirectoriesOfOneNameAreCopied(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		for _, upload := range []bool{true, false} {
			here, there := "", ":"
			if !upload {
				here, there = ":", ""
			}
			src := fileTree(t, map[string]string{"src/src/src/f": "1", "src/a/src/g": "2", "src/a/b/a/b/h": "3", "src/merged/x/merged/": ""})
			dest := fileTree(t, map[string]string{"merged/a/": ""})
			server.expectCommand(t, d, result{}, "cp", "-r", here+src+"/src", there+dest)
			expectSameTree(t, "new", dest+"/src", src+"/src", false)
			server.expectCommand(t, d, result{}, "cp", "-r", here+src+"/src/.", there+dest+"/merged")
			expectSameTree(t, "merged", dest+"/merged", src+"/src", false)
		}
	}
}
