package server_test

import (
	"os"
	"testing"

	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func TestFiles_MalformedRequest_NamesField(t *testing.T) {
	f := newFixture(t)
	meta := func(req *execwirev1.GetMetadataRequest) error {
		_, err := f.files.GetMetadata(f.ctx, req)
		return err
	}
	copied := func(req *execwirev1.CopyPathRequest) error {
		_, err := f.files.CopyPath(f.ctx, req)
		return err
	}
	uploaded := func(req *execwirev1.UploadFileRequest) error {
		_, err := f.upload(req)
		return err
	}
	downloaded := func(req *execwirev1.DownloadFileRequest) error {
		stream, err := f.files.DownloadFile(f.ctx, req)
		if err != nil {
			return err
		}
		_, err = stream.Recv()
		return err
	}
	_, noContent := f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{})
	noMode := uploadHead("/x")
	noMode.GetHead().Mode = 0
	unknownMode := uploadHead("/x")
	unknownMode.GetHead().Mode = 9
	tests := []struct {
		name, field string
		err         error
	}{
		{"no path", "path", noContent},
		{"no path", "path", meta(&execwirev1.GetMetadataRequest{})},
		{"relative", "path", meta(&execwirev1.GetMetadataRequest{Path: "x"})},
		{"NUL", "path", meta(&execwirev1.GetMetadataRequest{Path: "/x\x00"})},
		{"relative bytes", "raw_path", meta(&execwirev1.GetMetadataRequest{RawPath: []byte("x\xff")})},
		{"NUL in bytes", "raw_path", meta(&execwirev1.GetMetadataRequest{RawPath: []byte("/\x00")})},
		{"both", "raw_path", meta(&execwirev1.GetMetadataRequest{Path: "/x", RawPath: []byte("/x")})},
		{"sandbox without a kind", "sandbox.policy", meta(&execwirev1.GetMetadataRequest{Path: "/x", Sandbox: &execwirev1.SandboxPolicy{}})},
		{"sandbox without files", "sandbox.managed.file_system.policy", meta(&execwirev1.GetMetadataRequest{Path: "/x",
			Sandbox: &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Managed{}}})},
		{"no source", "source_path", copied(&execwirev1.CopyPathRequest{DestinationPath: "/x"})},
		{"no destination", "destination_path", copied(&execwirev1.CopyPathRequest{SourcePath: "/x"})},
		{"relative source", "raw_source_path", copied(&execwirev1.CopyPathRequest{RawSourcePath: []byte("x"), DestinationPath: "/x"})},
		{"relative destination", "raw_destination_path", copied(&execwirev1.CopyPathRequest{SourcePath: "/x", RawDestinationPath: []byte("x")})},
		{"empty upload", "message", uploaded(&execwirev1.UploadFileRequest{})},
		{"upload without a path", "head.path", uploaded(uploadHead(""))},
		{"upload without a mode", "head.mode", uploaded(noMode)},
		{"upload of an unknown mode", "head.mode", uploaded(unknownMode)},
		{"offset", "offset", downloaded(&execwirev1.DownloadFileRequest{Path: "/x", Offset: 1 << 63})},
		{"download without a path", "path", downloaded(&execwirev1.DownloadFileRequest{})},
	}
	for _, tt := range tests {
		expectFailure(t, tt.err, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
		if field := violatedField(tt.err); field != tt.field {
			t.Errorf("%s: the violated field is %q, want %q", tt.name, field, tt.field)
		}
	}
}

// Without a sandbox backend, calls that must be confined change nothing.
func TestConfinedFiles_NoSandbox_ChangesNothing(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	f.write(dir+"/f", "kept")
	confined := &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Managed{Managed: &execwirev1.ManagedSandbox{
		FileSystem: &execwirev1.FileSystemPolicy{Policy: &execwirev1.FileSystemPolicy_Restricted{Restricted: &execwirev1.RestrictedFileSystem{}}}}}}
	path := dir + "/f"
	_, read := f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{Path: path, Sandbox: confined})
	_, write := f.files.WriteFile(f.ctx, &execwirev1.WriteFileRequest{Path: path, Sandbox: confined})
	_, create := f.files.CreateDirectory(f.ctx, &execwirev1.CreateDirectoryRequest{Path: dir + "/d", Sandbox: confined})
	_, look := f.files.GetMetadata(f.ctx, &execwirev1.GetMetadataRequest{Path: path, Sandbox: confined})
	_, remove := f.files.RemovePath(f.ctx, &execwirev1.RemovePathRequest{Path: path, Sandbox: confined})
	_, copied := f.files.CopyPath(f.ctx, &execwirev1.CopyPathRequest{SourcePath: path, DestinationPath: dir + "/g", Sandbox: confined})
	_, canonicalize := f.files.CanonicalizePath(f.ctx, &execwirev1.CanonicalizePathRequest{Path: path, Sandbox: confined})
	_, renamed := f.files.RenamePath(f.ctx, &execwirev1.RenamePathRequest{SourcePath: path, DestinationPath: dir + "/g", Sandbox: confined})
	_, linked := f.files.CreateSymlink(f.ctx, &execwirev1.CreateSymlinkRequest{Path: dir + "/l", Target: "f", Sandbox: confined})
	_, changed := f.files.SetMetadata(f.ctx, &execwirev1.SetMetadataRequest{Path: path, Sandbox: confined})
	_, replaced := f.upload(replaceHead(path, func(h *execwirev1.UploadHead) { h.Sandbox = confined }))
	head := uploadHead(path)
	head.GetHead().Sandbox = confined
	_, upload := f.upload(head)
	failures := []error{read, write, create, look, remove, copied, canonicalize, upload, renamed, linked, changed, replaced}
	listing, err := f.files.ReadDirectory(f.ctx, &execwirev1.ReadDirectoryRequest{Path: dir, Sandbox: confined})
	if err == nil {
		_, err = listing.Recv()
	}
	failures = append(failures, err)
	download, err := f.files.DownloadFile(f.ctx, &execwirev1.DownloadFileRequest{Path: path, Sandbox: confined})
	if err == nil {
		_, err = download.Recv()
	}
	failures = append(failures, err, f.watchError(&execwirev1.WatchDirectoryRequest{Path: dir, Sandbox: confined}),
		f.awaitError(&execwirev1.AwaitPathsRequest{Missing: []*execwirev1.AwaitedPath{{Path: path}}, Sandbox: confined}))
	for _, err := range failures {
		expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "kept" {
		t.Errorf("the file contains %q: %v", got, err)
	}
	if list := f.entries(&execwirev1.ReadDirectoryRequest{Path: dir}); len(list) != 1 {
		t.Errorf("the directory contains %v", list)
	}
	for _, policy := range []*execwirev1.SandboxPolicy{
		{Policy: &execwirev1.SandboxPolicy_Disabled{Disabled: &execwirev1.DisabledSandbox{}}},
		{Policy: &execwirev1.SandboxPolicy_External{External: &execwirev1.ExternalSandbox{}}},
		{Policy: &execwirev1.SandboxPolicy_Managed{Managed: &execwirev1.ManagedSandbox{
			FileSystem: &execwirev1.FileSystemPolicy{Policy: &execwirev1.FileSystemPolicy_Unrestricted{}}}}},
	} {
		if _, err := f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{Path: path, Sandbox: policy}); err != nil {
			t.Errorf("%v: %v", policy, err)
		}
	}
}
