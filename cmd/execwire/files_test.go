package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func TestModeString(t *testing.T) {
	for want, m := range map[string]*execwirev1.FileMetadata{
		"-rw-r--r--": {Type: execwirev1.FileType_FILE_TYPE_REGULAR, Mode: 0o644},
		"drwxrwxrwt": {Type: execwirev1.FileType_FILE_TYPE_DIRECTORY, Mode: 0o1777},
		"lrwxrwxrwx": {Type: execwirev1.FileType_FILE_TYPE_SYMLINK, Mode: 0o777},
		"-rwsr-Sr-T": {Type: execwirev1.FileType_FILE_TYPE_REGULAR, Mode: 0o7744},
		"?---------": {},
	} {
		if got := modeString(m); got != want {
			t.Errorf("%v is %q, want %q", m, got, want)
		}
	}
}

func TestInColumns(t *testing.T) {
	names := []string{"a", "bb", "ccc", "d", "e"}
	for width, want := range map[int][]string{
		18: {"a  bb  ccc  d  e"},
		9:  {"a    d", "bb   e", "ccc"},
		1:  {"a", "bb", "ccc", "d", "e"},
	} {
		if got := inColumns(names, width); !slices.Equal(got, want) {
			t.Errorf("in %d columns: %q, want %q", width, got, want)
		}
	}
}

func TestLsTime(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.Local)
	for want, at := range map[string]time.Time{
		"Nov 21 11:59": now.Add(-time.Minute),
		"Nov  1  2025": time.Date(2025, 11, 1, 0, 0, 0, 0, time.Local),
		"Nov 21  2027": now.AddDate(1, 0, 0),
	} {
		if got := lsTime(at, now); got != want {
			t.Errorf("%v is %q, want %q", at, got, want)
		}
	}
}

// File names must not affect a terminal.
func TestNames_ControlCharacters_AreEscaped(t *testing.T) {
	for name, want := range map[string]string{"a b": "a b", "a\x1b[2J": `"a\x1b[2J"`, "\x9b2J": `"\x9b2J"`, "é": "é"} {
		if got := printable(name); got != want {
			t.Errorf("%q is shown as %s, want %s", name, got, want)
		}
	}
	if got := sanitize("failed to read a\x1b[2J\u009b:\nno such file"); got != "failed to read a\\x1b[2J\\u009b:\nno such file" {
		t.Errorf("the message is %q", got)
	}
}

// What the end of an argument means to cp and mv stays.
func TestAbsolutePaths(t *testing.T) {
	t.Chdir("/usr")
	for argument, want := range map[string][2]string{
		"/a/../b/": {"/a/../b/", "/b"}, ":/a": {":/a", "/a"}, "a": {"/usr/a", "/usr/a"}, ":": {":/usr/", "/usr"}, ":a/.": {":/usr/a/.", "/usr/a"},
		"../x/": {"/usr/../x/", "/x"}, "./:a": {"/usr/./:a", "/usr/:a"}, "/\xff": {"/\xff", "/\xff"}, ".": {"/usr/.", "/usr"},
	} {
		got, _, err := absolutePaths(t.Context(), nil, localURL, []string{"x", argument}, pathsAfterFirst)
		if err != nil || got[0] != "x" || got[1] != want[0] || remotePath(got[1]) != want[1] {
			t.Errorf("%q is %q, %v; want %q", argument, got, err, want)
		}
	}
}

func TestLongFlags(t *testing.T) {
	for line, want := range map[string]string{
		"find -name x -type=f --name y -maxdepth 1 -print0": "find --name x --type=f --name y --maxdepth 1 --print0",
		"find -names -h":      "find -names -h",
		"find -json -- -name": "find --json -- -name",
		"ls -name":            "ls -name",
		"":                    "",
	} {
		if got := strings.Join(expandFlags(strings.Fields(line)), " "); got != want {
			t.Errorf("%q is %q, want %q", line, got, want)
		}
	}
}
