package files

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// wantKept checks that a file is as withMounts created it.
func wantKept(t *testing.T, files fileClient, path string) {
	t.Helper()
	got, err := files.ReadFile(harness.Context(t), &execwirev1.ReadFileRequest{Path: path})
	if err != nil || string(got.GetData()) != strings.Repeat("k", harness.MountedFileBytes) || got.GetMetadata().GetMode() != 0o640 {
		t.Errorf("%s has %d bytes and %v: %v", path, len(got.GetData()), got.GetMetadata(), err)
	}
}

// A full disk has an error of its own, over every transport and with every way to write.
// Writing succeeds again after a removal.
func TestFiles_FullDisk(t *testing.T) {
	server, dir := harness.MountedServer(t)
	dir += "/full"
	files, c := fileService(server, t), harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize("")
	large := []byte(strings.Repeat("n", harness.FullBytes))
	noSpace := fileOutcome{execwirev1.ErrorReason_ERROR_REASON_NO_SPACE, -32603, "No space left on device (os error 28)"}
	for _, tt := range []fileCall{
		{name: "write a new file", call: unary(fileClient.WriteFile, &execwirev1.WriteFileRequest{Path: dir + "/new", Data: large}),
			method: "fs/writeFile", params: harness.RPCParams{"path": dir + "/new2", "dataBase64": inBase64(large)}},
		{name: "upload a new file", call: uploading(&execwirev1.UploadHead{Path: dir + "/new3", Mode: execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE}, large)},
		{name: "copy a file", call: unary(fileClient.CopyPath, &execwirev1.CopyPathRequest{SourcePath: dir + "/kept", DestinationPath: dir + "/copy"}),
			method: "fs/copy", params: harness.RPCParams{"sourcePath": dir + "/kept", "destinationPath": dir + "/copy2", "recursive": false}},
		{name: "replace a file", call: uploading(&execwirev1.UploadHead{Path: dir + "/kept", Mode: execwirev1.UploadMode_UPLOAD_MODE_REPLACE}, large)},
	} {
		tt.expect(t, files, c, noSpace)
		wantKept(t, files, dir+"/kept")
		// A failed write in place leaves a part of the new file, which uses space. A replacement leaves
		// nothing.
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
		{name: "remove", method: "fs/remove", params: harness.RPCParams{"path": dir + "/other"}},
		{name: "write what fits", call: unary(fileClient.WriteFile, &execwirev1.WriteFileRequest{Path: dir + "/new", Data: large[:harness.MountedFileBytes]})},
		{name: "read it", call: downloading(&execwirev1.DownloadFileRequest{Path: dir + "/new"}), method: "fs/readFile", params: harness.RPCParams{"path": dir + "/new"}},
	} {
		tt.expect(t, files, c, fileOutcome{})
	}
	// The same without free inodes, which directories need too.
	for i := range 40 {
		err := unary(fileClient.CreateDirectory, &execwirev1.CreateDirectoryRequest{Path: fmt.Sprintf("%s/d%d", dir, i)})(harness.Context(t), files)
		if err != nil {
			break
		}
	}
	fileCall{name: "make a directory", call: unary(fileClient.CreateDirectory, &execwirev1.CreateDirectoryRequest{Path: dir + "/e"}),
		method: "fs/createDirectory", params: harness.RPCParams{"path": dir + "/f/g"}}.expect(t, files, c, noSpace)
}

// A read-only file system is not changed, and everything can be read.
func TestFiles_ReadOnlyMount(t *testing.T) {
	server, dir := harness.MountedServer(t)
	dir += "/frozen"
	files, c := fileService(server, t), harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize("")
	readOnly := fileOutcome{execwirev1.ErrorReason_ERROR_REASON_READ_ONLY_FILE_SYSTEM, -32603, "Read-only file system (os error 30)"}
	for _, tt := range []fileCall{
		{name: "write", call: unary(fileClient.WriteFile, &execwirev1.WriteFileRequest{Path: dir + "/kept"}),
			method: "fs/writeFile", params: harness.RPCParams{"path": dir + "/kept", "dataBase64": ""}},
		{name: "write a new file", call: unary(fileClient.WriteFile, &execwirev1.WriteFileRequest{Path: dir + "/new"}),
			method: "fs/writeFile", params: harness.RPCParams{"path": dir + "/new", "dataBase64": ""}},
		{name: "upload in place", call: uploading(&execwirev1.UploadHead{Path: dir + "/kept", Mode: execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE}, []byte("x"))},
		{name: "replace", call: uploading(&execwirev1.UploadHead{Path: dir + "/kept", Mode: execwirev1.UploadMode_UPLOAD_MODE_REPLACE}, []byte("x"))},
		{name: "rename", call: unary(fileClient.RenamePath, &execwirev1.RenamePathRequest{SourcePath: dir + "/kept", DestinationPath: dir + "/moved"})},
		{name: "make a link", call: unary(fileClient.CreateSymlink, &execwirev1.CreateSymlinkRequest{Path: dir + "/link", Target: "kept"})},
		{name: "touch", call: unary(fileClient.SetMetadata, &execwirev1.SetMetadataRequest{Path: dir + "/kept", Touch: true})},
		{name: "make a directory", call: unary(fileClient.CreateDirectory, &execwirev1.CreateDirectoryRequest{Path: dir + "/new/er", Recursive: true}),
			method: "fs/createDirectory", params: harness.RPCParams{"path": dir + "/new/er"}},
		{name: "remove", call: unary(fileClient.RemovePath, &execwirev1.RemovePathRequest{Path: dir + "/kept"}),
			method: "fs/remove", params: harness.RPCParams{"path": dir + "/kept"}},
		{name: "remove a tree", call: unary(fileClient.RemovePath, &execwirev1.RemovePathRequest{Path: dir + "/d", Recursive: true}),
			method: "fs/remove", params: harness.RPCParams{"path": dir + "/d"}},
		{name: "copy to", call: unary(fileClient.CopyPath, &execwirev1.CopyPathRequest{SourcePath: dir + "/kept", DestinationPath: dir + "/copy"}),
			method: "fs/copy", params: harness.RPCParams{"sourcePath": dir + "/kept", "destinationPath": dir + "/copy", "recursive": false}},
	} {
		tt.expect(t, files, c, readOnly)
	}
	for _, tt := range []fileCall{
		{name: "read", call: downloading(&execwirev1.DownloadFileRequest{Path: dir + "/kept"}),
			method: "fs/readFile", params: harness.RPCParams{"path": dir + "/kept"}},
		{name: "list", call: listing(&execwirev1.ReadDirectoryRequest{Path: dir}),
			method: "fs/readDirectory", params: harness.RPCParams{"path": dir}},
		{name: "look", call: unary(fileClient.GetMetadata, &execwirev1.GetMetadataRequest{Path: dir + "/kept"}),
			method: "fs/getMetadata", params: harness.RPCParams{"path": dir + "/kept"}},
		{name: "make what exists", call: unary(fileClient.CreateDirectory, &execwirev1.CreateDirectoryRequest{Path: dir + "/d/e", Recursive: true}),
			method: "fs/createDirectory", params: harness.RPCParams{"path": dir + "/d/e"}},
		{name: "remove what is missing", call: unary(fileClient.RemovePath, &execwirev1.RemovePathRequest{Path: dir + "/none", IgnoreMissing: true}),
			method: "fs/remove", params: harness.RPCParams{"path": dir + "/none"}},
	} {
		tt.expect(t, files, c, fileOutcome{})
	}
	wantKept(t, files, dir+"/kept")
	if names := namesIn(t, files, dir); !slices.Equal(names, []string{"d", "kept"}) {
		t.Errorf("the read-only file system has %q", names)
	}
}

// serveAsNobody runs a server as another user, from a copy that this user can execute.
func serveAsNobody(t *testing.T) *harness.Command {
	t.Helper()
	c := harness.NewCommand(harness.PublicListeners...)
	c.Path = filepath.Join(harness.PublicDir(t), "execwire")
	harness.CopyFile(t, harness.Execwire, c.Path)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: harness.NobodyUID, Gid: harness.NobodyUID}}
	c.Listen(t, 2)
	return c
}

// Clients have no more permissions than the user of the server.
func TestFiles_UnprivilegedServer(t *testing.T) {
	dir := harness.PublicDir(t)
	for _, step := range []error{
		os.WriteFile(dir+"/secret", []byte("secret"), 0o600),
		os.WriteFile(dir+"/public", []byte("public"), 0o644),
		os.Mkdir(dir+"/locked", 0o700),
		os.WriteFile(dir+"/locked/f", []byte("locked"), 0o644),
		os.Mkdir(dir+"/own", 0o755),
		os.Chown(dir+"/own", harness.NobodyUID, harness.NobodyUID),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	server := serveAsNobody(t)
	files, c := fileService(server, t), harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize("")
	denied := fileOutcome{execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED, -32600, "Permission denied (os error 13)"}
	for _, tt := range []fileCall{
		{name: "read", call: unary(fileClient.ReadFile, &execwirev1.ReadFileRequest{Path: dir + "/secret"}),
			method: "fs/readFile", params: harness.RPCParams{"path": dir + "/secret"}},
		{name: "download", call: downloading(&execwirev1.DownloadFileRequest{Path: dir + "/secret"})},
		{name: "look", call: unary(fileClient.GetMetadata, &execwirev1.GetMetadataRequest{Path: dir + "/locked/f"}),
			method: "fs/getMetadata", params: harness.RPCParams{"path": dir + "/locked/f"}},
		{name: "list", call: listing(&execwirev1.ReadDirectoryRequest{Path: dir + "/locked"}),
			method: "fs/readDirectory", params: harness.RPCParams{"path": dir + "/locked"}},
		{name: "resolve", call: unary(fileClient.CanonicalizePath, &execwirev1.CanonicalizePathRequest{Path: dir + "/locked/f"}),
			method: "fs/canonicalize", params: harness.RPCParams{"path": dir + "/locked/f"}},
		{name: "write", call: unary(fileClient.WriteFile, &execwirev1.WriteFileRequest{Path: dir + "/public"}),
			method: "fs/writeFile", params: harness.RPCParams{"path": dir + "/public", "dataBase64": ""}},
		{name: "upload in place", call: uploading(&execwirev1.UploadHead{Path: dir + "/public", Mode: execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE}, []byte("x"))},
		{name: "replace", call: uploading(&execwirev1.UploadHead{Path: dir + "/public", Mode: execwirev1.UploadMode_UPLOAD_MODE_REPLACE}, []byte("x"))},
		{name: "rename", call: unary(fileClient.RenamePath, &execwirev1.RenamePathRequest{SourcePath: dir + "/public", DestinationPath: dir + "/own/moved"})},
		{name: "make a link", call: unary(fileClient.CreateSymlink, &execwirev1.CreateSymlinkRequest{Path: dir + "/link", Target: "public"})},
		{name: "change", call: unary(fileClient.SetMetadata, &execwirev1.SetMetadataRequest{Path: dir + "/public", Permissions: new(uint32(0o777))})},
		{name: "make", call: unary(fileClient.CreateDirectory, &execwirev1.CreateDirectoryRequest{Path: dir + "/new"}),
			method: "fs/createDirectory", params: harness.RPCParams{"path": dir + "/new"}},
		{name: "remove", call: unary(fileClient.RemovePath, &execwirev1.RemovePathRequest{Path: dir + "/public"}),
			method: "fs/remove", params: harness.RPCParams{"path": dir + "/public"}},
		{name: "copy what is secret", call: unary(fileClient.CopyPath, &execwirev1.CopyPathRequest{SourcePath: dir + "/secret", DestinationPath: dir + "/own/s"}),
			method: "fs/copy", params: harness.RPCParams{"sourcePath": dir + "/secret", "destinationPath": dir + "/own/s", "recursive": false}},
		{name: "copy a tree", call: unary(fileClient.CopyPath, &execwirev1.CopyPathRequest{SourcePath: dir + "/locked", DestinationPath: dir + "/own/l", Recursive: true}),
			method: "fs/copy", params: harness.RPCParams{"sourcePath": dir + "/locked", "destinationPath": dir + "/own/l", "recursive": true}},
	} {
		tt.expect(t, files, c, denied)
	}
	for _, tt := range []fileCall{
		{name: "read what is public", call: downloading(&execwirev1.DownloadFileRequest{Path: dir + "/public"}),
			method: "fs/readFile", params: harness.RPCParams{"path": dir + "/public"}},
		{name: "write what is its own", call: unary(fileClient.WriteFile, &execwirev1.WriteFileRequest{Path: dir + "/own/f"}),
			method: "fs/writeFile", params: harness.RPCParams{"path": dir + "/own/g", "dataBase64": ""}},
	} {
		tt.expect(t, files, c, fileOutcome{})
	}
	if content, err := os.ReadFile(dir + "/public"); err != nil || string(content) != "public" {
		t.Errorf("what it could not write has %q: %v", content, err)
	}
	if info, err := os.Stat(dir + "/own/f"); err != nil || info.Sys().(*syscall.Stat_t).Uid != harness.NobodyUID {
		t.Errorf("what it wrote is %v: %v", info, err)
	}
}
