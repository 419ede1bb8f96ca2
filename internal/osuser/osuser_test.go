package osuser

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// testDatabase has lines that the C library accepts, and some that it skips.
func testDatabase(t *testing.T) database {
	t.Helper()
	d := database{passwd: filepath.Join(t.TempDir(), "passwd"), group: filepath.Join(t.TempDir(), "group")}
	passwd := strings.Join([]string{
		"# a comment", "short:x:1", "bad:x:-1:0::/bad:/bin/sh", "most:x:4294967295:0::/most:/bin/sh",
		"root:x:0:0:root:/root:/bin/bash", "build:x:1000:100:Build:/srv/build:/bin/zsh", "again:x:1000:7::/again:/bin/again",
		"plain:x:1001:1001:::", "relative:x:1002:1002::home:/bin/sh", "1003:x:2003:2003::/number:/bin/sh", "last:x:1004:4::/last:/bin/last",
	}, "\n")
	group := "users:x:100:\nwheel:x:10:root,build\ndocker:x:999:build\nusers2:x:100:build\nwrong:x:many:build\nempty:x:50:\nlast:x:60:last,build"
	for path, text := range map[string]string{d.passwd: passwd, d.group: group} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func TestLookup(t *testing.T) {
	d := testDatabase(t)
	for text, want := range map[string]User{
		"root":       {Name: "root", Groups: []uint32{10}, Home: "/root", Shell: "/bin/bash"},
		"build":      {Name: "build", UID: 1000, GID: 100, Groups: []uint32{10, 999, 60}, Home: "/srv/build", Shell: "/bin/zsh"},
		"1000":       {Name: "build", UID: 1000, GID: 100, Groups: []uint32{10, 999, 60}, Home: "/srv/build", Shell: "/bin/zsh"},
		"again":      {Name: "again", UID: 1000, GID: 7, Home: "/again", Shell: "/bin/again"},
		"plain":      {Name: "plain", UID: 1001, GID: 1001, Home: "/", Shell: "/bin/sh"},
		"relative":   {Name: "relative", UID: 1002, GID: 1002, Home: "/", Shell: "/bin/sh"},
		"1003":       {Name: "1003", UID: 2003, GID: 2003, Home: "/number", Shell: "/bin/sh"}, // the name comes first
		"last":       {Name: "last", UID: 1004, GID: 4, Groups: []uint32{60}, Home: "/last", Shell: "/bin/last"},
		"5000":       {UID: 5000, GID: 5000, Home: "/", Shell: "/bin/sh"},
		"build:50":   {Name: "build", UID: 1000, GID: 50, ChoseGroup: true, Home: "/srv/build", Shell: "/bin/zsh"},
		"0:docker":   {Name: "root", GID: 999, ChoseGroup: true, Home: "/root", Shell: "/bin/bash"},
		"5000:12345": {UID: 5000, GID: 12345, ChoseGroup: true, Home: "/", Shell: "/bin/sh"},
	} {
		if got, err := d.lookup(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "is not NAME or UID", ":": "is not NAME or UID", ":wheel": "is not NAME or UID", "build:": "is not NAME or UID",
		"nosuch": "a user that " + d.passwd, "bad": "a user that", "most": "a user that", "4294967295": "a user that", "-1": "a user that", "+1": "a user that",
		"build:nosuch": "a group that " + d.group, "build:wrong": "a group that", "build:4294967295": "a group that", "build:10:10": "a group that",
	} {
		if got, err := d.lookup(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %+v, %v; want an error with %q", text, got, err, want)
		}
	}
}

func TestLookup_WithoutFiles_NumbersOnly(t *testing.T) {
	d := database{passwd: "/nonexistent/passwd", group: "/nonexistent/group"}
	if got, err := d.lookup("5:6"); err != nil || got.UID != 5 || got.GID != 6 {
		t.Errorf("numbers are %+v, %v", got, err)
	}
	if got, err := d.lookup("root"); err == nil {
		t.Errorf("a name is %+v", got)
	}
	if got, err := (database{passwd: t.TempDir()}).lookup("0"); err == nil {
		t.Errorf("with a directory for a file 0 is %+v", got)
	}
}

func TestIncludes(t *testing.T) {
	d := testDatabase(t)
	for _, tc := range []struct {
		entry, asked string
		want         bool
	}{
		{"build", "1000", true}, {"1000", "build:docker", true}, {"build", "build:100", true},
		{"build", "build:50", false}, {"build", "root", false}, {"build", "build:0", false},
		{"build:50", "build:50", true}, {"build:50", "build:empty", true}, {"build:50", "build", false}, {"build:50", "root:50", false},
		{"5000", "5000:5000", true}, {"5000", "5000:0", false},
	} {
		entry, err := d.lookup(tc.entry)
		if err != nil {
			t.Fatal(err)
		}
		asked, err := d.lookup(tc.asked)
		if err != nil {
			t.Fatal(err)
		}
		if got := entry.Includes(asked); got != tc.want {
			t.Errorf("%s has %s: %v", tc.entry, tc.asked, got)
		}
	}
}

func TestEnviron(t *testing.T) {
	d := testDatabase(t)
	server := []string{"HOME=/root", "LANG=C", "USER=root", "LOGNAME=root", "PATH=/opt/bin", "SHELL=/bin/bash", "HOMES=1"}
	for text, want := range map[string]string{
		"build": "HOME=/srv/build SHELL=/bin/zsh PATH=/usr/local/bin:/usr/bin:/bin USER=build LOGNAME=build LANG=C HOMES=1",
		"5000":  "HOME=/ SHELL=/bin/sh PATH=/usr/local/bin:/usr/bin:/bin LANG=C HOMES=1",
		"root":  "HOME=/root SHELL=/bin/bash PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin USER=root LOGNAME=root LANG=C HOMES=1",
	} {
		u, err := d.lookup(text)
		if got := strings.Join(u.Environ(server), " "); err != nil || got != want {
			t.Errorf("%s has %s, %v; want %s", text, got, err, want)
		}
	}
}
