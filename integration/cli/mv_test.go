package cli

import (
	"github.com/execwire/execwire/integration/harness"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMove_Files(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		dir := harness.FileTree(t, map[string]string{"a": "a", "b": "b", "tree/x": "x", "sub/a": "old", "other/y": "y"})
		server.ExpectCommand(t, d, harness.Result{}, "mv", dir+"/a", dir+"/c")
		server.ExpectCommand(t, d, harness.Result{}, "mv", "-n", dir+"/c", dir+"/b")
		server.ExpectCommand(t, d, harness.Result{}, "mv", dir+"/c", dir+"/tree", dir+"/sub")
		server.ExpectCommand(t, d, harness.Result{}, "mv", "-T", dir+"/other", dir+"/other2")
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
			got := harness.Run(t, nil, server.Remotely(d, "mv", tt.args...)...)
			if got.Code == 0 || !strings.Contains(got.Stderr, tt.says) {
				t.Errorf("mv %q through %s: %+v, want %q", tt.args, d, got, tt.says)
			}
		}
	}
}

// Moving to another file system copies the source and then removes it.
func TestMove_AcrossFileSystems(t *testing.T) {
	server, dir := harness.MountedServer(t)
	server.ExpectCommand(t, harness.TCPTransport, harness.Result{}, "mv", dir+"/full/kept", dir+"/moved")
	if got, err := os.ReadFile(dir + "/moved"); string(got) != strings.Repeat("k", harness.MountedFileBytes) {
		t.Errorf("received %d bytes, %v", len(got), err)
	}
	server.ExpectCommand(t, harness.TCPTransport, harness.Result{Stdout: "other\n"}, "ls", dir+"/full")
	// One that cannot be removed is there twice.
	got := harness.Run(t, nil, server.Remotely(harness.TCPTransport, "mv", dir+"/frozen/kept", dir+"/full/copy")...)
	if got.Code != 1 || !strings.Contains(got.Stderr, "read-only") {
		t.Errorf("from a read-only file system: %+v", got)
	}
	server.ExpectCommand(t, harness.TCPTransport, harness.Result{Stdout: "copy\nother\n"}, "ls", dir+"/full")
	// What is in the way is replaced, or not, as by a rename.
	server.ExpectCommand(t, harness.TCPTransport, harness.Result{}, "mv", "-n", dir+"/moved", dir+"/full/other")
	server.ExpectCommand(t, harness.TCPTransport, harness.Result{}, "rm", dir+"/full/other")
	server.ExpectCommand(t, harness.TCPTransport, harness.Result{}, "mkdir", "-p", dir+"/tree/a", dir+"/full/d/x")
	got = harness.Run(t, nil, server.Remotely(harness.TCPTransport, "mv", "-T", dir+"/tree", dir+"/full/d")...)
	if got.Code != 1 || !strings.Contains(got.Stderr, "execwire rm -r") {
		t.Errorf("over what is not empty: %+v", got)
	}
	server.ExpectCommand(t, harness.TCPTransport, harness.Result{}, "mv", dir+"/tree", dir+"/full/d")
	server.ExpectCommand(t, harness.TCPTransport, harness.Result{Stdout: "tree\nx\n"}, "ls", dir+"/full/d")
}
