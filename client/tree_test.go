package client_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
)

// newTree makes files, directories, which end with a slash, and links, "NAME>TARGET".
func newTree(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path, target, isLink := strings.Cut(filepath.Join(dir, name), ">")
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		switch {
		case err != nil:
		case isLink:
			err = os.Symlink(target, path)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o700)
		default:
			err = os.WriteFile(path, []byte(name), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func open(t *testing.T) *client.Client {
	t.Helper()
	c, err := daemon.Open(t.Context(), daemon.LocalURL, daemon.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestGlob(t *testing.T) {
	c := open(t)
	dir := newTree(t, "etc/hosts", "etc/host.conf", "etc/.hostile", "srv/b/log/1", "srv/a/log/2", "srv/a/x", "srv/.c/log/3", "w/a*", "w/ab", "w/[a]", "w/a", "l>srv/a")
	for pattern, want := range map[string]string{
		"etc/host*":       "etc/host.conf etc/hosts",
		"etc/hosts":       "etc/hosts",
		"etc/.h*":         "etc/.hostile",
		"etc/nosuch*":     "",
		"etc/nosuch":      "",
		"no*/x":           "",
		"nosuch/*":        "",
		"srv/*/log":       "srv/a/log srv/b/log",
		"srv/*/x":         "srv/a/x",
		"srv/?/log/*":     "srv/a/log/2 srv/b/log/1",
		"srv/a/x/*":       "",
		"srv/a/*/":        "srv/a/log", // x is no directory
		"srv/a/x/":        "",
		"l/":              "l", // a link to one
		"l/*":             "l/log l/x",
		"w/a*":            "w/a w/a* w/ab",
		`w/a\*`:           "w/a*",
		"w/[ab]":          "w/a",
		"w/a?":            "w/a* w/ab",
		`w/\[a]`:          "w/[a]",
		`w/[\[!]a]`:       "w/[a]",
		"srv/[!b]/*":      "srv/a/log srv/a/x",
		"etc/host[!.a]":   "etc/hosts",
		"srv/**":          "srv/a srv/a/log srv/a/log/2 srv/a/x srv/b srv/b/log srv/b/log/1",
		"srv/**/":         "srv/a srv/a/log srv/b srv/b/log",
		"srv/**/log/**/?": "srv/a/log/2 srv/b/log/1",
		"**/x":            "srv/a/x",
	} {
		got, err := c.Glob(t.Context(), dir+"/"+pattern)
		for i := range got {
			got[i] = strings.TrimPrefix(got[i], dir+"/")
		}
		if strings.Join(got, " ") != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", pattern, got, err, want)
		}
	}
	for _, pattern := range []string{"x*", "", "/w/[", `/w/x*\`} {
		if got, err := c.Glob(t.Context(), pattern); err == nil {
			t.Errorf("%q: %q", pattern, got)
		}
	}
}

// Ignored entries are neither copied nor deleted, in both directions.
func TestTransfer_Ignore(t *testing.T) {
	c := open(t)
	dir := newTree(t, "a", "x.log", "sub/x.log", "sub/b", "out/c", "sub/out/d", "keep/out")
	for name, move := range map[string]func(from, to string, options client.TransferOptions) error{
		"push": func(from, to string, options client.TransferOptions) error {
			_, err := c.Push(t.Context(), from, to, options)
			return err
		},
		"pull": func(from, to string, options client.TransferOptions) error {
			_, err := c.Pull(t.Context(), from, to, options)
			return err
		},
	} {
		to := newTree(t, "gone", "there.log", "sub/gone", "sub/out/e", "gone.d/x.log")
		options := client.TransferOptions{Recursive: true, Delete: true, Ignore: []string{"*.log", "/sub/out/", "out/c"}}
		if err := move(dir, to, options); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []string
		err := filepath.WalkDir(to, func(path string, _ os.DirEntry, err error) error {
			got = append(got, strings.TrimPrefix(path, to))
			return err
		})
		if want := []string{"", "/a", "/keep", "/keep/out", "/out", "/sub", "/sub/b", "/sub/out", "/sub/out/e", "/there.log"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
		options.Ignore = []string{"["}
		if err := move(dir, to, options); err == nil || !strings.Contains(err.Error(), "TransferOptions.Ignore") {
			t.Errorf("%s with a malformed pattern: %v", name, err)
		}
	}
}
