package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/testproc"
)

func init() { testproc.Register("with-small-mounts", withMounts) }

// Sizes of the file systems of withMounts.
const (
	fullBytes = 256 << 10
	keptBytes = 100 << 10
)

// withMounts DIR COMMAND... mounts two small file systems in DIR, which nobody
// else sees, and executes the command: full, which has room for kept and not for
// two of it, and frozen, which is read-only.
func withMounts(args []string) int {
	runtime.LockOSThread() // the mounts are of the thread that executes
	full, frozen := args[0]+"/full", args[0]+"/frozen"
	kept := []byte(strings.Repeat("k", keptBytes))
	for _, step := range []func() error{
		func() error { return unix.Unshare(unix.CLONE_NEWNS) },
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error {
			return unix.Mount("none", full, "tmpfs", 0, fmt.Sprintf("size=%d,nr_inodes=32", fullBytes))
		},
		func() error { return os.WriteFile(full+"/kept", kept, 0o640) },
		func() error { return os.WriteFile(full+"/other", kept, 0o640) },
		func() error { return unix.Mount("none", frozen, "tmpfs", 0, "size=1m") },
		func() error { return os.WriteFile(frozen+"/kept", kept, 0o640) },
		func() error { return os.MkdirAll(frozen+"/d/e", 0o755) },
		func() error { return unix.Mount("none", frozen, "", unix.MS_REMOUNT|unix.MS_RDONLY, "") },
		func() error { return unix.Exec(args[1], args[1:], os.Environ()) },
	} {
		if err := step(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return 0
}

// everybodysDoors are those that every user can open.
var everybodysDoors = []string{"serve", "--listen", "grpc://127.0.0.1:0", "--listen", "ws://127.0.0.1:0"}

// wantKept wants a file to be as withMounts made it.
func wantKept(t *testing.T, files fileClient, path string) {
	t.Helper()
	got, err := files.ReadFile(testContext(t), &execwirev1.ReadFileRequest{Path: path})
	if err != nil || string(got.GetData()) != strings.Repeat("k", keptBytes) || got.GetMetadata().GetMode() != 0o640 {
		t.Errorf("%s has %d bytes and %v: %v", path, len(got.GetData()), got.GetMetadata(), err)
	}
}

// mountedServer runs a server that sees the file systems of withMounts, and
// returns where they are.
func mountedServer(t *testing.T) (c *command, dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"full", "frozen"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c = newCommand(everybodysDoors...)
	argv := testproc.Argv("with-small-mounts", append([]string{dir}, c.Args...)...)
	c.Path, c.Args = argv[0], argv
	c.listen(t, 2)
	return c, dir
}

// A full disk is an error that says so, at every door and however one writes; it
// is full no longer when something was removed.
func TestAFullDisk(t *testing.T) {
	server, dir := mountedServer(t)
	dir += "/full"
	files, c := server.fileService(t), websocketClient(t, server.address(websocketDoor)).initialize("")
	large := []byte(strings.Repeat("n", fullBytes))
	noSpace := fileOutcome{execwirev1.ErrorReason_ERROR_REASON_NO_SPACE, -32603, "No space left on device (os error 28)"}
	for _, tt := range []fileCall{
		{name: "write a new file", call: unary(fileClient.WriteFile, &execwirev1.WriteFileRequest{Path: dir + "/new", Data: large}),
			method: "fs/writeFile", params: rpcParams{"path": dir + "/new2", "dataBase64": inBase64(large)}},
		{name: "upload a new file", call: uploading(&execwirev1.UploadHead{Path: dir + "/new3", Mode: execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE}, large)},
		{name: "copy a file", call: unary(fileClient.CopyPath, &execwirev1.CopyPathRequest{SourcePath: dir + "/kept", DestinationPath: dir + "/copy"}),
			method: "fs/copy", params: rpcParams{"sourcePath": dir + "/kept", "destinationPath": dir + "/copy2", "recursive": false}},
		{name: "replace a file", call: uploading(&execwirev1.UploadHead{Path: dir + "/kept", Mode: execwirev1.UploadMode_UPLOAD_MODE_REPLACE}, large)},
	} {
		tt.expect(t, files, c, noSpace)
		wantKept(t, files, dir+"/kept")
		// What a refused call in place has written of a new file is there, and
		// takes room. A replacement leaves nothing.
		for _, name := range namesIn(t, files, dir) {
			if name != "kept" && name != "other" {
				if strings.HasPrefix(tt.name, "replace") {
					t.Errorf("%s left %s", tt.name, name)
				}
				remove := unary(fileClient.RemovePath, &execwirev1.RemovePathRequest{Path: dir + "/" + name})
				fileCall{name: "remove " + name, call: remove}.expect(t, files, c, fileOutcome{})
			}
		}
	}
	wantKept(t, files, dir+"/kept")
	for _, tt := range []fileCall{
		{name: "remove", method: "fs/remove", params: rpcParams{"path": dir + "/other"}},
		{name: "write what fits", call: unary(fileClient.WriteFile, &execwirev1.WriteFileRequest{Path: dir + "/new", Data: large[:keptBytes]})},
		{name: "read it", call: downloading(&execwirev1.DownloadFileRequest{Path: dir + "/new"}), method: "fs/readFile", params: rpcParams{"path": dir + "/new"}},
	} {
		tt.expect(t, files, c, fileOutcome{})
	}
	// And when there are no more inodes, which directories need too.
	for i := range 40 {
		err := unary(fileClient.CreateDirectory, &execwirev1.CreateDirectoryRequest{Path: fmt.Sprintf("%s/d%d", dir, i)})(testContext(t), files)
		if err != nil {
			break
		}
	}
	fileCall{name: "make a directory", call: unary(fileClient.CreateDirectory, &execwirev1.CreateDirectoryRequest{Path: dir + "/e"}),
		method: "fs/createDirectory", params: rpcParams{"path": dir + "/f/g"}}.expect(t, files, c, noSpace)
}

// Nothing of a read-only file system changes, and everything can be read.
func TestAReadOnlyMount(t *testing.T) {
	server, dir := mountedServer(t)
	dir += "/frozen"
	files, c := server.fileService(t), websocketClient(t, server.address(websocketDoor)).initialize("")
	readOnly := fileOutcome{execwirev1.ErrorReason_ERROR_REASON_READ_ONLY_FILE_SYSTEM, -32603, "Read-only file system (os error 30)"}
	for _, tt := range []fileCall{
		{name: "write", call: unary(fileClient.WriteFile, &execwirev1.WriteFileRequest{Path: dir + "/kept"}),
			method: "fs/writeFile", params: rpcParams{"path": dir + "/kept", "dataBase64": ""}},
		{name: "write a new file", call: unary(fileClient.WriteFile, &execwirev1.WriteFileRequest{Path: dir + "/new"}),
			method: "fs/writeFile", params: rpcParams{"path": dir + "/new", "dataBase64": ""}},
		{name: "upload in place", call: uploading(&execwirev1.UploadHead{Path: dir + "/kept", Mode: execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE}, []byte("x"))},
		{name: "replace", call: uploading(&execwirev1.UploadHead{Path: dir + "/kept", Mode: execwirev1.UploadMode_UPLOAD_MODE_REPLACE}, []byte("x"))},
		{name: "rename", call: unary(fileClient.RenamePath, &execwirev1.RenamePathRequest{SourcePath: dir + "/kept", DestinationPath: dir + "/moved"})},
		{name: "make a link", call: unary(fileClient.CreateSymlink, &execwirev1.CreateSymlinkRequest{Path: dir + "/link", Target: "kept"})},
		{name: "make a directory", call: unary(fileClient.CreateDirectory, &execwirev1.CreateDirectoryRequest{Path: dir + "/new/er", Recursive: true}),
			method: "fs/createDirectory", params: rpcParams{"path": dir + "/new/er"}},
		{name: "remove", call: unary(fileClient.RemovePath, &execwirev1.RemovePathRequest{Path: dir + "/kept"}),
			method: "fs/remove", params: rpcParams{"path": dir + "/kept"}},
		{name: "remove a tree", call: unary(fileClient.RemovePath, &execwirev1.RemovePathRequest{Path: dir + "/d", Recursive: true}),
			method: "fs/remove", params: rpcParams{"path": dir + "/d"}},
		{name: "copy to", call: unary(fileClient.CopyPath, &execwirev1.CopyPathRequest{SourcePath: dir + "/kept", DestinationPath: dir + "/copy"}),
			method: "fs/copy", params: rpcParams{"sourcePath": dir + "/kept", "destinationPath": dir + "/copy", "recursive": false}},
	} {
		tt.expect(t, files, c, readOnly)
	}
	for _, tt := range []fileCall{
		{name: "read", call: downloading(&execwirev1.DownloadFileRequest{Path: dir + "/kept"}),
			method: "fs/readFile", params: rpcParams{"path": dir + "/kept"}},
		{name: "list", call: listing(&execwirev1.ReadDirectoryRequest{Path: dir}),
			method: "fs/readDirectory", params: rpcParams{"path": dir}},
		{name: "look", call: unary(fileClient.GetMetadata, &execwirev1.GetMetadataRequest{Path: dir + "/kept"}),
			method: "fs/getMetadata", params: rpcParams{"path": dir + "/kept"}},
		{name: "make what exists", call: unary(fileClient.CreateDirectory, &execwirev1.CreateDirectoryRequest{Path: dir + "/d/e", Recursive: true}),
			method: "fs/createDirectory", params: rpcParams{"path": dir + "/d/e"}},
		{name: "remove what is missing", call: unary(fileClient.RemovePath, &execwirev1.RemovePathRequest{Path: dir + "/none", IgnoreMissing: true}),
			method: "fs/remove", params: rpcParams{"path": dir + "/none"}},
	} {
		tt.expect(t, files, c, fileOutcome{})
	}
	wantKept(t, files, dir+"/kept")
	if names := namesIn(t, files, dir); !slices.Equal(names, []string{"d", "kept"}) {
		t.Errorf("the read-only file system has %q", names)
	}
}

// serveAsNobody runs a server as another user, from a copy that this user can
// reach.
func serveAsNobody(t *testing.T) *command {
	t.Helper()
	c := newCommand(everybodysDoors...)
	c.Path = filepath.Join(publicDir(t), "execwire")
	copyFile(t, execwire, c.Path)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	c.listen(t, 2)
	return c
}

// What the server's user may not do, its clients may not, and are told so.
func TestAServerOfAnOrdinaryUser(t *testing.T) {
	dir := publicDir(t)
	for _, step := range []error{
		os.WriteFile(dir+"/secret", []byte("secret"), 0o600),
		os.WriteFile(dir+"/public", []byte("public"), 0o644),
		os.Mkdir(dir+"/locked", 0o700),
		os.WriteFile(dir+"/locked/f", []byte("locked"), 0o644),
		os.Mkdir(dir+"/own", 0o755),
		os.Chown(dir+"/own", nobody, nobody),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	server := serveAsNobody(t)
	files, c := server.fileService(t), websocketClient(t, server.address(websocketDoor)).initialize("")
	denied := fileOutcome{execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED, -32600, "Permission denied (os error 13)"}
	for _, tt := range []fileCall{
		{name: "read", call: unary(fileClient.ReadFile, &execwirev1.ReadFileRequest{Path: dir + "/secret"}),
			method: "fs/readFile", params: rpcParams{"path": dir + "/secret"}},
		{name: "download", call: downloading(&execwirev1.DownloadFileRequest{Path: dir + "/secret"})},
		{name: "look", call: unary(fileClient.GetMetadata, &execwirev1.GetMetadataRequest{Path: dir + "/locked/f"}),
			method: "fs/getMetadata", params: rpcParams{"path": dir + "/locked/f"}},
		{name: "list", call: listing(&execwirev1.ReadDirectoryRequest{Path: dir + "/locked"}),
			method: "fs/readDirectory", params: rpcParams{"path": dir + "/locked"}},
		{name: "resolve", call: unary(fileClient.CanonicalizePath, &execwirev1.CanonicalizePathRequest{Path: dir + "/locked/f"}),
			method: "fs/canonicalize", params: rpcParams{"path": dir + "/locked/f"}},
		{name: "write", call: unary(fileClient.WriteFile, &execwirev1.WriteFileRequest{Path: dir + "/public"}),
			method: "fs/writeFile", params: rpcParams{"path": dir + "/public", "dataBase64": ""}},
		{name: "upload in place", call: uploading(&execwirev1.UploadHead{Path: dir + "/public", Mode: execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE}, []byte("x"))},
		{name: "replace", call: uploading(&execwirev1.UploadHead{Path: dir + "/public", Mode: execwirev1.UploadMode_UPLOAD_MODE_REPLACE}, []byte("x"))},
		{name: "rename", call: unary(fileClient.RenamePath, &execwirev1.RenamePathRequest{SourcePath: dir + "/public", DestinationPath: dir + "/own/moved"})},
		{name: "make a link", call: unary(fileClient.CreateSymlink, &execwirev1.CreateSymlinkRequest{Path: dir + "/link", Target: "public"})},
		{name: "make", call: unary(fileClient.CreateDirectory, &execwirev1.CreateDirectoryRequest{Path: dir + "/new"}),
			method: "fs/createDirectory", params: rpcParams{"path": dir + "/new"}},
		{name: "remove", call: unary(fileClient.RemovePath, &execwirev1.RemovePathRequest{Path: dir + "/public"}),
			method: "fs/remove", params: rpcParams{"path": dir + "/public"}},
		{name: "copy what is secret", call: unary(fileClient.CopyPath, &execwirev1.CopyPathRequest{SourcePath: dir + "/secret", DestinationPath: dir + "/own/s"}),
			method: "fs/copy", params: rpcParams{"sourcePath": dir + "/secret", "destinationPath": dir + "/own/s", "recursive": false}},
		{name: "copy a tree", call: unary(fileClient.CopyPath, &execwirev1.CopyPathRequest{SourcePath: dir + "/locked", DestinationPath: dir + "/own/l", Recursive: true}),
			method: "fs/copy", params: rpcParams{"sourcePath": dir + "/locked", "destinationPath": dir + "/own/l", "recursive": true}},
	} {
		tt.expect(t, files, c, denied)
	}
	for _, tt := range []fileCall{
		{name: "read what is public", call: downloading(&execwirev1.DownloadFileRequest{Path: dir + "/public"}),
			method: "fs/readFile", params: rpcParams{"path": dir + "/public"}},
		{name: "write what is its own", call: unary(fileClient.WriteFile, &execwirev1.WriteFileRequest{Path: dir + "/own/f"}),
			method: "fs/writeFile", params: rpcParams{"path": dir + "/own/g", "dataBase64": ""}},
	} {
		tt.expect(t, files, c, fileOutcome{})
	}
	if content, err := os.ReadFile(dir + "/public"); err != nil || string(content) != "public" {
		t.Errorf("what it could not write has %q: %v", content, err)
	}
	if info, err := os.Stat(dir + "/own/f"); err != nil || info.Sys().(*syscall.Stat_t).Uid != nobody {
		t.Errorf("what it wrote is %v: %v", info, err)
	}
}
