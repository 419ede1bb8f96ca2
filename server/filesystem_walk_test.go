package server_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// walk reads a stream of WalkDirectory to its end.
func (f *fixture) walk(req *execwirev1.WalkDirectoryRequest) (entries []*execwirev1.WalkEntry, errs []*execwirev1.WalkError, end *execwirev1.WalkEnd, err error) {
	f.t.Helper()
	stream, err := f.files.WalkDirectory(f.ctx, req)
	if err != nil {
		f.t.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if err == io.EOF {
			return entries, errs, end, nil
		}
		if err != nil {
			return nil, nil, nil, err
		}
		switch {
		case end != nil:
			f.t.Fatalf("received %v after the end", m)
		case m.GetEntries() != nil:
			if n := len(m.GetEntries().GetEntries()); n == 0 || n > 1000 {
				f.t.Fatalf("a message has %d entries", n)
			}
			entries = append(entries, m.GetEntries().GetEntries()...)
		case m.GetError() != nil:
			errs = append(errs, m.GetError())
		}
		end = m.GetEnd()
	}
}

func TestWalkDirectory(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "d/.hid"), 0o755), os.WriteFile(filepath.Join(dir, "d/.hid/x"), nil, 0o644),
		os.WriteFile(filepath.Join(dir, "d/f\xff"), []byte("abc"), 0o640), os.Symlink("d", filepath.Join(dir, "l")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	entries, errs, end, err := f.walk(&execwirev1.WalkDirectoryRequest{Path: dir, WantMetadata: true})
	if err != nil || errs != nil || end == nil || end.GetTruncated() || len(entries) != 5 {
		t.Fatalf("%v, %v, %v, %v", entries, errs, end, err)
	}
	for i, want := range []*execwirev1.WalkEntry{
		{Path: "d", Type: directory, TargetType: directory}, {Path: "l", Type: symlink, LinkTarget: "d"},
		{Path: "d/.hid", Type: directory, TargetType: directory}, {Path: "d/f\uFFFD", RawPath: []byte("d/f\xff"), Type: regular, TargetType: regular},
		{Path: "d/.hid/x", Type: regular, TargetType: regular},
	} {
		metadata := entries[i].GetMetadata()
		entries[i].Metadata = nil
		if !proto.Equal(entries[i], want) || metadata.GetType() != want.GetType() || i == 3 && (metadata.GetSize() != 3 || metadata.GetMode() != 0o640) {
			t.Errorf("%v with %v, want %v", entries[i], metadata, want)
		}
	}
	entries, _, end, err = f.walk(&execwirev1.WalkDirectoryRequest{Path: dir, MaxEntries: proto.Uint64(1)})
	if err != nil || len(entries) != 1 || entries[0].GetMetadata() != nil || !end.GetTruncated() || end.GetLimit() != execwirev1.WalkLimit_WALK_LIMIT_ENTRIES {
		t.Errorf("%v, %v, %v", entries, end, err)
	}
	entries, _, end, err = f.walk(&execwirev1.WalkDirectoryRequest{Path: dir, MaxDirectories: proto.Uint32(1)})
	if err != nil || len(entries) != 2 || !end.GetTruncated() || end.GetLimit() != execwirev1.WalkLimit_WALK_LIMIT_DIRECTORIES {
		t.Errorf("%v, %v, %v", entries, end, err)
	}
	entries, _, end, err = f.walk(&execwirev1.WalkDirectoryRequest{Path: dir, MaxDepth: proto.Uint32(1), FollowDirectorySymlinks: true, SkipHiddenDirectories: true, Ignore: []string{"f*"}})
	if err != nil || len(entries) != 3 || end.GetTruncated() || entries[1].GetTargetType() != directory || entries[2].GetPath() != "d/.hid" {
		t.Errorf("%v, %v, %v", entries, end, err)
	}
}

func TestWalkDirectory_InvalidRequest_Fails(t *testing.T) {
	f := newFixture(t)
	path := t.TempDir() + "/f"
	f.write(path, "content")
	for _, tt := range []struct {
		field string
		req   *execwirev1.WalkDirectoryRequest
	}{
		{"path", &execwirev1.WalkDirectoryRequest{Path: "f"}},
		{"max_directories", &execwirev1.WalkDirectoryRequest{Path: "/", MaxDirectories: proto.Uint32(250_001)}},
		{"ignore", &execwirev1.WalkDirectoryRequest{Path: "/", Ignore: []string{"a", "[b"}}},
		{"ignore", &execwirev1.WalkDirectoryRequest{Path: "/", Ignore: strings.Split(strings.Repeat("a ", 100)+"a", " ")}},
	} {
		_, _, _, err := f.walk(tt.req)
		expectFailure(t, err, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
		if got := violatedField(err); got != tt.field {
			t.Errorf("the violated field is %s, want %s: %v", got, tt.field, err)
		}
	}
	_, _, _, err := f.walk(&execwirev1.WalkDirectoryRequest{Path: path})
	expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_NOT_A_DIRECTORY)
	_, _, _, err = f.walk(&execwirev1.WalkDirectoryRequest{Path: path + "/none"})
	expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_NOT_A_DIRECTORY)
}
