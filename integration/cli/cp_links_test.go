package cli

import (
	"github.com/execwire/execwire/integration/harness"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// linked makes links in a directory.
func linked(t testing.TB, dir string, links map[string]string) {
	t.Helper()
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// ends are the two ways of a copy: what its source and its destination begin with.
var ends = [][2]string{{"", ":"}, {":", ""}}

// A link named with a trailing slash or dot means its target, and so does a link as the
// destination.
func TestCopy_NamedLink_IsFollowed(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		for _, end := range ends {
			src := harness.FileTree(t, map[string]string{"real/a": "1", "real/sub/b": "2"})
			dir := harness.FileTree(t, map[string]string{"elsewhere/in/kept": "kept", "in/": ""})
			linked(t, src, map[string]string{"link": "real"})
			linked(t, dir, map[string]string{"dest": "elsewhere/in", "far": t.TempDir()})
			for _, name := range []string{"/link/.", "/link/"} {
				dest := filepath.Join(dir, filepath.Base(t.TempDir()))
				server.ExpectCommand(t, d, harness.Result{}, "cp", "-rT", end[0]+src+name, end[1]+dest)
				expectSameTree(t, "from "+name, dest, src+"/real", false)
				server.ExpectCommand(t, d, harness.Result{}, "rm", "-r", dest)
			}
			server.ExpectCommand(t, d, harness.Result{}, "cp", "-r", end[0]+src+"/link/", end[1]+dir+"/in")
			expectSameTree(t, "into", dir+"/in/link", src+"/real", false)
			for _, dest := range []string{"/far", "/dest"} {
				for _, flags := range [][]string{{"-r"}, {"-rT"}, {"-r", "--update", "--delete"}} {
					args := append(flags, end[0]+src+"/real/.", end[1]+dir+dest)
					server.ExpectCommand(t, d, harness.Result{}, "cp", args...)
					if info, err := os.Lstat(dir + dest); err != nil || info.Mode()&os.ModeSymlink == 0 {
						t.Fatalf("%q through %s: the link is gone: %v, %v", args, d, info, err)
					}
				}
				expectSameTree(t, "to a link", dir+dest+"/.", src+"/real", false)
			}
		}
	}
}

// Links left by a first copy do not lead a later copy out of the destination.
func TestCopy_Links_StayInTheDestination(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		for _, end := range ends {
			first, second := t.TempDir(), harness.FileTree(t, map[string]string{"l/key": "evil", "other": "good"})
			dir := harness.FileTree(t, map[string]string{"secret/": ""})
			linked(t, first, map[string]string{"l": "../secret"})
			dest := dir + "/dest"
			server.ExpectCommand(t, d, harness.Result{}, "cp", "-rT", end[0]+first, end[1]+dest)
			if got := harness.Run(t, nil, server.Remotely(d, "cp", "-rT", end[0]+second, end[1]+dest)...); got.Code != 1 || !strings.Contains(got.Stderr, "in its place") {
				t.Errorf("through %s: %+v", d, got)
			}
			if entries, err := os.ReadDir(dir + "/secret"); len(entries) != 0 || err != nil {
				t.Errorf("through %s there is %v, %v", d, entries, err)
			}
			if got, err := os.ReadFile(dest + "/other"); string(got) != "good" {
				t.Errorf("through %s there is %q, %v", d, got, err)
			}
			server.ExpectCommand(t, d, harness.Result{}, "cp", "-rT", "--delete", end[0]+second, end[1]+dest)
			expectSameTree(t, "with --delete", dest, second, false)
		}
	}
}
