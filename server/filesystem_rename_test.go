package server_test

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func TestRenamePath_AndCreateSymlink(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	f.write(dir+"/f", "one")
	f.write(dir+"/g", "two")
	rename := func(req *execwirev1.RenamePathRequest) error {
		_, err := f.files.RenamePath(f.ctx, req)
		return err
	}
	link := func(req *execwirev1.CreateSymlinkRequest) error {
		_, err := f.files.CreateSymlink(f.ctx, req)
		return err
	}
	expectFailure(t, rename(&execwirev1.RenamePathRequest{SourcePath: dir + "/f", DestinationPath: dir + "/g", NoReplace: true}),
		codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_PATH_ALREADY_EXISTS)
	expectFailure(t, link(&execwirev1.CreateSymlinkRequest{Path: dir + "/f", Target: "g"}),
		codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_PATH_ALREADY_EXISTS)
	for _, err := range []error{
		rename(&execwirev1.RenamePathRequest{SourcePath: dir + "/f", RawDestinationPath: []byte(dir + "/bad\xff")}),
		rename(&execwirev1.RenamePathRequest{RawSourcePath: []byte(dir + "/bad\xff"), DestinationPath: dir + "/g"}),
		link(&execwirev1.CreateSymlinkRequest{Path: dir + "/l", Target: "g"}),
		link(&execwirev1.CreateSymlinkRequest{Path: dir + "/m", RawTarget: []byte("bad\xff")}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if got, err := os.ReadFile(dir + "/l"); err != nil || string(got) != "one" {
		t.Errorf("the link's target has %q: %v", got, err)
	}
	if target, err := os.Readlink(dir + "/m"); err != nil || target != "bad\xff" {
		t.Errorf("the link's target is %q: %v", target, err)
	}
}

func TestCreateDirectory_SetsPermissions(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	if _, err := f.files.CreateDirectory(f.ctx, &execwirev1.CreateDirectoryRequest{Path: dir + "/p/d", Recursive: true, Permissions: proto.Uint32(0o1771)}); err != nil {
		t.Fatal(err)
	}
	m, err := f.files.GetMetadata(f.ctx, &execwirev1.GetMetadataRequest{Path: dir + "/p/d"})
	if err != nil || m.GetMetadata().GetMode() != 0o1771 {
		t.Errorf("%v, %v", m, err)
	}
}

func TestGetMetadata_WithDigest(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	f.write(dir+"/f", "content")
	if err := os.Symlink("f", dir+"/l"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path     string
		noFollow bool
		digest   []byte
	}{
		{"/f", false, sum("content")},
		{"/f", true, sum("content")},
		{"/l", false, sum("content")},
		{"/l", true, nil},
		{"", false, nil},
	} {
		resp, err := f.files.GetMetadata(f.ctx, &execwirev1.GetMetadataRequest{Path: dir + tt.path, NoFollow: tt.noFollow, WantSha256: true})
		if err != nil || !bytes.Equal(resp.GetSha256(), tt.digest) || resp.GetMetadata().GetIsSymlink() != (tt.path == "/l") {
			t.Errorf("%s: %v, %v", tt.path, resp, err)
		}
	}
}

func TestDownload_WithDigest(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	content := strings.Repeat("0123456789", 10_000)
	f.write(dir+"/f", content)
	download := func(req *execwirev1.DownloadFileRequest) (end *execwirev1.DownloadEnd, err error) {
		stream, err := f.files.DownloadFile(f.ctx, req)
		for err == nil {
			var m *execwirev1.DownloadFileResponse
			if m, err = stream.Recv(); err == nil && end != nil {
				t.Errorf("received %v after the end", m)
			}
			if m.GetEnd() != nil {
				end = m.GetEnd()
			}
		}
		if err == io.EOF {
			err = nil
		}
		return end, err
	}
	looked, err := f.files.GetMetadata(f.ctx, &execwirev1.GetMetadataRequest{Path: dir + "/f"})
	if err != nil {
		t.Fatal(err)
	}
	version := looked.GetMetadata().GetVersion()
	for _, tt := range []struct {
		req  *execwirev1.DownloadFileRequest
		want string
	}{
		{&execwirev1.DownloadFileRequest{Path: dir + "/f", WantSha256: true, IfVersion: version}, content},
		{&execwirev1.DownloadFileRequest{Path: dir + "/f", WantSha256: true, Offset: 5, Length: proto.Uint64(40_000)}, content[5:40_005]},
		{&execwirev1.DownloadFileRequest{Path: dir + "/f", WantSha256: true, Length: proto.Uint64(0)}, ""},
	} {
		if end, err := download(tt.req); err != nil || !bytes.Equal(end.GetSha256(), sum(tt.want)) || end.GetChanged() {
			t.Errorf("%v ends with %v, %v", tt.req, end, err)
		}
	}
	if end, err := download(&execwirev1.DownloadFileRequest{Path: dir + "/f"}); err != nil || end != nil {
		t.Errorf("an end that was not requested: %v, %v", end, err)
	}
	f.write(dir+"/f", "other")
	_, err = download(&execwirev1.DownloadFileRequest{Path: dir + "/f", IfVersion: version})
	expectFailure(t, err, codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_FILE_CHANGED)
}

func TestDownload_FileModified_IsReported(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	if err := os.WriteFile(dir+"/f", make([]byte, 16<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	stream, err := f.files.DownloadFile(f.ctx, &execwirev1.DownloadFileRequest{Path: dir + "/f", WantSha256: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	// The file is larger than the buffers of the stream, so the server has not read it all.
	if err := os.Truncate(dir+"/f", 16<<20+1); err != nil {
		t.Fatal(err)
	}
	var end *execwirev1.DownloadEnd
	for {
		m, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		end = m.GetEnd()
	}
	if !end.GetChanged() || len(end.GetSha256()) != 32 {
		t.Errorf("the end is %v", end)
	}
}

func TestRenamePath_MalformedRequest_NamesField(t *testing.T) {
	f := newFixture(t)
	renamed := func(req *execwirev1.RenamePathRequest) error {
		_, err := f.files.RenamePath(f.ctx, req)
		return err
	}
	linked := func(req *execwirev1.CreateSymlinkRequest) error {
		_, err := f.files.CreateSymlink(f.ctx, req)
		return err
	}
	_, made := f.files.CreateDirectory(f.ctx, &execwirev1.CreateDirectoryRequest{Path: "/x", Permissions: proto.Uint32(0o10000)})
	stream, err := f.files.DownloadFile(f.ctx, &execwirev1.DownloadFileRequest{Path: "/x", IfVersion: strings.Repeat("x", 257)})
	if err == nil {
		_, err = stream.Recv()
	}
	changed := func(req *execwirev1.SetMetadataRequest) error {
		_, err := f.files.SetMetadata(f.ctx, req)
		return err
	}
	confined := &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Managed{}}
	for _, tt := range []struct {
		field string
		err   error
	}{
		{"source_path", renamed(&execwirev1.RenamePathRequest{DestinationPath: "/x"})},
		{"destination_path", renamed(&execwirev1.RenamePathRequest{SourcePath: "/x"})},
		{"raw_source_path", renamed(&execwirev1.RenamePathRequest{SourcePath: "/x", RawSourcePath: []byte("/x"), DestinationPath: "/x"})},
		{"sandbox.managed.file_system.policy", renamed(&execwirev1.RenamePathRequest{SourcePath: "/x", DestinationPath: "/x", Sandbox: confined})},
		{"path", linked(&execwirev1.CreateSymlinkRequest{Target: "x"})},
		{"target", linked(&execwirev1.CreateSymlinkRequest{Path: "/x"})},
		{"target", linked(&execwirev1.CreateSymlinkRequest{Path: "/x", Target: "\x00"})},
		{"raw_target", linked(&execwirev1.CreateSymlinkRequest{Path: "/x", Target: "x", RawTarget: []byte("x")})},
		{"raw_target", linked(&execwirev1.CreateSymlinkRequest{Path: "/x", RawTarget: []byte("\x00")})},
		{"permissions", made},
		{"path", changed(&execwirev1.SetMetadataRequest{})},
		{"permissions", changed(&execwirev1.SetMetadataRequest{Path: "/x", Permissions: proto.Uint32(0o10000)})},
		{"modify_time", changed(&execwirev1.SetMetadataRequest{Path: "/x", ModifyTime: &timestamppb.Timestamp{Nanos: -1}})},
		{"touch", changed(&execwirev1.SetMetadataRequest{Path: "/x", ModifyTime: &timestamppb.Timestamp{}, Touch: true})},
		{"if_version", err},
	} {
		expectFailure(t, tt.err, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
		if got := violatedField(tt.err); got != tt.field {
			t.Errorf("the violated field is %q, want %q: %v", got, tt.field, tt.err)
		}
	}
}
