package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFilesAreMoved(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		dir := fileTree(t, map[string]string{"a": "a", "b": "b", "tree/x": "x", "sub/a": "old", "other/y": "y"})
		server.expectCommand(t, d, result{}, "mv", dir+"/a", dir+"/c")
		server.expectCommand(t, d, result{}, "mv", "-n", dir+"/c", dir+"/b")
		server.expectCommand(t, d, result{}, "mv", dir+"/c", dir+"/tree", dir+"/sub")
		server.expectCommand(t, d, result{}, "mv", "-T", dir+"/other", dir+"/other2")
		for path, want := range map[string]string{"b": "b", "sub/c": "a", "sub/tree/x": "x", "sub/a": "old", "other2/y": "y"} {
			if got, err := os.ReadFile(filepath.Join(dir, path)); string(got) != want {
				t.Errorf("%s is %q, %v through %s", path, got, err, d)
			}
		}
		for _, tt := range []struct {
			args []string
			says string
		}{
			{[]string{dir + "/missing", dir + "/x"}, "no such file"},
			{[]string{"-T", dir + "/other2", dir + "/sub"}, "execwire rm -r"},
			{[]string{dir + "/b", dir + "/none/"}, "execwire mkdir"},
		} {
			got := run(t, nil, server.remotely(d, "mv", tt.args...)...)
			if got.code == 0 || !strings.Contains(got.stderr, tt.says) {
				t.Errorf("mv %q through %s: %+v, want %q", tt.args, d, got, tt.says)
			}
		}
	}
}

// To another file system things are copied, and removed when they are.
func TestFilesAreMovedToAnotherFileSystem(t *testing.T) {
	server, dir := mountedServer(t)
	server.expectCommand(t, tcpDoor, result{}, "mv", dir+"/full/kept", dir+"/moved")
	if got, err := os.ReadFile(dir + "/moved"); string(got) != strings.Repeat("k", keptBytes) {
		t.Errorf("%d bytes came, %v", len(got), err)
	}
	server.expectCommand(t, tcpDoor, result{stdout: "other\n"}, "ls", dir+"/full")
	// One that cannot be removed is there twice.
	got := run(t, nil, server.remotely(tcpDoor, "mv", dir+"/frozen/kept", dir+"/full/copy")...)
	if got.code != 1 || !strings.Contains(got.stderr, "read-only") {
		t.Errorf("from a read-only file system: %+v", got)
	}
	server.expectCommand(t, tcpDoor, result{stdout: "copy\nother\n"}, "ls", dir+"/full")
	// What is in the way is replaced, or not, as by a rename.
	server.expectCommand(t, tcpDoor, result{}, "mv", "-n", dir+"/moved", dir+"/full/other")
	server.expectCommand(t, tcpDoor, result{}, "rm", dir+"/full/other")
	server.expectCommand(t, tcpDoor, result{}, "mkdir", "-p", dir+"/tree/a", dir+"/full/d/x")
	got = run(t, nil, server.remotely(tcpDoor, "mv", "-T", dir+"/tree", dir+"/full/d")...)
	if got.code != 1 || !strings.Contains(got.stderr, "execwire rm -r") {
		t.Errorf("over what is not empty: %+v", got)
	}
	server.expectCommand(t, tcpDoor, result{}, "mv", dir+"/tree", dir+"/full/d")
	server.expectCommand(t, tcpDoor, result{stdout: "tree\nx\n"}, "ls", dir+"/full/d")
}
