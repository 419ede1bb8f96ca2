package server_test

import (
	"io"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// noSymlinkCalls returns the calls with no_symlinks, by the name of the request message.
func (f *fixture) noSymlinkCalls(path string) map[protoreflect.Name]func() error {
	ends := func(recv func() (any, error), err error) error {
		for err == nil {
			if _, err = recv(); err == io.EOF {
				return nil
			}
		}
		return err
	}
	upload := func(mode execwirev1.UploadMode) error {
		head := &execwirev1.UploadHead{Path: path, Mode: mode, NoSymlinks: true}
		_, err := f.upload(&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: head}})
		return err
	}
	return map[protoreflect.Name]func() error{
		"ReadFileRequest": func() error {
			_, err := f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{Path: path, NoSymlinks: true})
			return err
		},
		"DownloadFileRequest": func() error {
			stream, err := f.files.DownloadFile(f.ctx, &execwirev1.DownloadFileRequest{Path: path, NoSymlinks: true})
			return ends(func() (any, error) { return stream.Recv() }, err)
		},
		"WriteFileRequest": func() error {
			_, err := f.files.WriteFile(f.ctx, &execwirev1.WriteFileRequest{Path: path, NoSymlinks: true})
			return err
		},
		"UploadHead": func() error {
			if err := upload(execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE); err != nil {
				if replaceErr := upload(execwirev1.UploadMode_UPLOAD_MODE_REPLACE); replaceErr == nil {
					return nil
				}
				return err
			}
			return upload(execwirev1.UploadMode_UPLOAD_MODE_REPLACE)
		},
		"CreateDirectoryRequest": func() error {
			_, err := f.files.CreateDirectory(f.ctx, &execwirev1.CreateDirectoryRequest{Path: path, Recursive: true, NoSymlinks: true})
			return err
		},
		"GetMetadataRequest": func() error {
			_, err := f.files.GetMetadata(f.ctx, &execwirev1.GetMetadataRequest{Path: path, NoSymlinks: true})
			return err
		},
		"ReadDirectoryRequest": func() error {
			stream, err := f.files.ReadDirectory(f.ctx, &execwirev1.ReadDirectoryRequest{Path: path, NoSymlinks: true})
			return ends(func() (any, error) { return stream.Recv() }, err)
		},
		"WalkDirectoryRequest": func() error {
			stream, err := f.files.WalkDirectory(f.ctx, &execwirev1.WalkDirectoryRequest{Path: path, NoSymlinks: true})
			return ends(func() (any, error) { return stream.Recv() }, err)
		},
		"OpenFileRequest": func() error {
			_, err := f.files.OpenFile(f.ctx, &execwirev1.OpenFileRequest{Path: path, HandleId: path, Mode: toRead, NoSymlinks: true})
			return err
		},
		"SetMetadataRequest": func() error {
			_, err := f.files.SetMetadata(f.ctx, &execwirev1.SetMetadataRequest{Path: path, Permissions: proto.Uint32(0o755), NoSymlinks: true})
			return err
		},
		"RemovePathRequest": func() error {
			_, err := f.files.RemovePath(f.ctx, &execwirev1.RemovePathRequest{Path: path, NoSymlinks: true})
			return err
		},
	}
}

// messagesWithField returns the messages of FileSystemService that have a field.
func messagesWithField(member protoreflect.Name) (names []protoreflect.Name) {
	for _, file := range []protoreflect.FileDescriptor{
		execwirev1.File_execwire_v1_filesystem_proto, execwirev1.File_execwire_v1_filesystem_transfer_proto,
		execwirev1.File_execwire_v1_filesystem_handle_proto, execwirev1.File_execwire_v1_filesystem_walk_proto,
	} {
		for i := range file.Messages().Len() {
			if m := file.Messages().Get(i); m.Fields().ByName(member) != nil {
				names = append(names, m.Name())
			}
		}
	}
	return names
}

func TestNoSymlinks(t *testing.T) {
	f := newFixture(t)
	for _, name := range messagesWithField("no_symlinks") {
		dir := t.TempDir()
		isDirectory := strings.Contains(string(name), "Directory")
		for _, err := range []error{os.Mkdir(dir+"/d", 0o755), os.WriteFile(dir+"/f", nil, 0o644), os.Symlink("f", dir+"/lf"), os.Symlink("d", dir+"/ld"), os.Symlink(".", dir+"/up")} {
			if err != nil {
				t.Fatal(err)
			}
		}
		path, final := "/f", "/lf"
		if isDirectory {
			path, final = "/d", "/ld"
		}
		for _, linked := range []string{final, "/up" + path} {
			call := f.noSymlinkCalls(dir + linked)[name]
			if call == nil {
				t.Fatalf("no test calls with %s", name)
			}
			expectFailure(t, call(), codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_SYMLINK_REFUSED)
		}
		if err := f.noSymlinkCalls(dir + path)[name](); err != nil {
			t.Errorf("%s without links: %v", name, err)
		}
	}
}
