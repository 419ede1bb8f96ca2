package server_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// watchDirectory begins a watch, and fails unless it has begun.
func (f *fixture) watchDirectory(ctx context.Context, req *execwirev1.WatchDirectoryRequest) grpc.ServerStreamingClient[execwirev1.WatchDirectoryResponse] {
	f.t.Helper()
	stream, err := f.files.WatchDirectory(ctx, req)
	if err != nil {
		f.t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil || first.GetStarted() == nil {
		f.t.Fatalf("the first message is %v: %v", first, err)
	}
	return stream
}

// watchError returns the error of a watch, or nil if it begins.
func (f *fixture) watchError(req *execwirev1.WatchDirectoryRequest) error {
	stream, err := f.files.WatchDirectory(f.ctx, req)
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

// awaitError returns the error of a wait for paths, or nil if it begins.
func (f *fixture) awaitError(req *execwirev1.AwaitPathsRequest) error {
	stream, err := f.files.AwaitPaths(f.ctx, req)
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

// until receives changes until done is true for them, and returns the last change of each path.
func (f *fixture) until(stream grpc.ServerStreamingClient[execwirev1.WatchDirectoryResponse], done func(map[string]*execwirev1.WatchChange) bool) map[string]*execwirev1.WatchChange {
	f.t.Helper()
	changes := map[string]*execwirev1.WatchChange{}
	for !done(changes) {
		message, err := stream.Recv()
		if err != nil {
			f.t.Fatalf("%v; received %v", err, changes)
		}
		for _, c := range message.GetChanges().GetChanges() {
			changes[c.GetPath()] = c
		}
	}
	return changes
}

func TestWatchDirectory(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	f.write(dir+"/old", "x")
	f.write(dir+"/changed", "x")
	ctx, cancel := context.WithCancelCause(f.ctx)
	stream := f.watchDirectory(ctx, &execwirev1.WatchDirectoryRequest{Path: dir, Recursive: true, Ignore: []string{"*.tmp"}})
	for _, err := range []error{os.MkdirAll(dir+"/d/e", 0o755), os.WriteFile(dir+"/d/e/bad\xff", nil, 0o600), os.Remove(dir + "/old"),
		os.WriteFile(dir+"/changed", []byte("y"), 0o600), os.WriteFile(dir+"/x.tmp", nil, 0o600), os.WriteFile(dir+"/last", nil, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	changes := f.until(stream, func(changes map[string]*execwirev1.WatchChange) bool {
		return changes["last"] != nil && changes["d/e/bad\uFFFD"] != nil
	})
	for path, want := range map[string]struct {
		kind execwirev1.WatchChangeKind
		of   execwirev1.FileType
	}{
		"d":       {execwirev1.WatchChangeKind_WATCH_CHANGE_KIND_CREATED, execwirev1.FileType_FILE_TYPE_DIRECTORY},
		"d/e":     {execwirev1.WatchChangeKind_WATCH_CHANGE_KIND_CREATED, execwirev1.FileType_FILE_TYPE_DIRECTORY},
		"old":     {execwirev1.WatchChangeKind_WATCH_CHANGE_KIND_REMOVED, execwirev1.FileType_FILE_TYPE_UNSPECIFIED},
		"changed": {execwirev1.WatchChangeKind_WATCH_CHANGE_KIND_MODIFIED, execwirev1.FileType_FILE_TYPE_REGULAR},
		"last":    {execwirev1.WatchChangeKind_WATCH_CHANGE_KIND_CREATED, execwirev1.FileType_FILE_TYPE_REGULAR},
	} {
		if changes[path].GetKind() != want.kind || changes[path].GetType() != want.of {
			t.Errorf("the change of %s is %v, want %v", path, changes[path], want)
		}
	}
	if raw := changes["d/e/bad\uFFFD"].GetRawPath(); string(raw) != "d/e/bad\xff" || changes["x.tmp"] != nil {
		t.Errorf("received %v", changes)
	}
	cancel(errors.New("enough"))
	var err error
	for err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Canceled {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestWatchDirectory_DirectoryRemoved_Ends(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	if err := os.MkdirAll(dir+"/a/b", 0o755); err != nil {
		t.Fatal(err)
	}
	stream := f.watchDirectory(f.ctx, &execwirev1.WatchDirectoryRequest{Path: dir + "/a", Recursive: true, Settle: durationpb.New(0)})
	if err := os.RemoveAll(dir + "/a"); err != nil {
		t.Fatal(err)
	}
	var lost *execwirev1.WatchLost
	for {
		message, err := stream.Recv()
		if err != nil {
			expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND)
			break
		}
		lost = message.GetLost()
	}
	if lost == nil || lost.GetPath() != "" || lost.GetReason() != execwirev1.WatchLostReason_WATCH_LOST_REASON_REMOVED || lost.GetMessage() == "" {
		t.Errorf("the last message was %v", lost)
	}
}

func TestAwaitPaths(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	f.write(dir+"/present", "x")
	stream, err := f.files.AwaitPaths(f.ctx, &execwirev1.AwaitPathsRequest{
		Missing: []*execwirev1.AwaitedPath{{Path: dir + "/a/b"}, {RawPath: []byte(dir + "/bad\xff")}}, Present: []*execwirev1.AwaitedPath{{Path: dir + "/present"}}})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := stream.Recv(); err != nil || first.GetStarted() == nil {
		t.Fatalf("the first message is %v: %v", first, err)
	}
	f.write(dir+"/bad\xff", "x")
	if got, err := stream.Recv(); err != nil || got.GetAwaited().GetIndex() != 1 || !got.GetAwaited().GetExists() {
		t.Errorf("the second message is %v: %v", got, err)
	}
	if got, err := stream.Recv(); err == nil {
		t.Errorf("received a third message: %v", got)
	}
}

func TestWatch_Limits(t *testing.T) {
	f, dir := newFixture(t, func(s *settings) {
		s.limits.WatchesPerPrincipal, s.limits.AwaitedPathsPerPrincipal, s.limits.WatchedDirectoriesPerWatch = 1, 2, 2
	}), t.TempDir()
	if err := os.MkdirAll(dir+"/a/b/c", 0o755); err != nil {
		t.Fatal(err)
	}
	awaited := func(n int) *execwirev1.AwaitPathsRequest {
		req := &execwirev1.AwaitPathsRequest{}
		for i := range n {
			req.Missing = append(req.Missing, &execwirev1.AwaitedPath{Path: fmt.Sprintf("%s/none/%d", dir, i)})
		}
		return req
	}
	deep := f.watchError(&execwirev1.WatchDirectoryRequest{Path: dir, Recursive: true})
	f.watchDirectory(f.ctx, &execwirev1.WatchDirectoryRequest{Path: dir})
	second := f.watchError(&execwirev1.WatchDirectoryRequest{Path: dir})
	paths := f.awaitError(awaited(3))
	if wait, err := f.files.AwaitPaths(f.ctx, awaited(2)); err != nil {
		t.Error(err)
	} else if _, err := wait.Recv(); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct {
		err     error
		reason  execwirev1.ErrorReason
		subject string
	}{
		{deep, execwirev1.ErrorReason_ERROR_REASON_WATCH_UNAVAILABLE, "watched_directories_per_watch"},
		{second, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_WATCHES, "watches_per_principal"},
		{paths, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_WATCHES, "awaited_paths_per_principal"},
	} {
		expectFailure(t, tt.err, codes.ResourceExhausted, tt.reason)
		subject := ""
		for _, detail := range status.Convert(tt.err).Details() {
			if quota, ok := detail.(*errdetails.QuotaFailure); ok {
				subject = quota.GetViolations()[0].GetSubject()
			}
		}
		if subject != tt.subject {
			t.Errorf("%v: the limit is %q, want %q", tt.err, subject, tt.subject)
		}
	}
}

func TestWatch_MalformedRequest_NamesField(t *testing.T) {
	f := newFixture(t)
	watched := func(req *execwirev1.WatchDirectoryRequest) error { return f.watchError(req) }
	tests := []struct {
		field string
		err   error
	}{
		{"path", watched(&execwirev1.WatchDirectoryRequest{Path: "x"})},
		{"ignore[1]", watched(&execwirev1.WatchDirectoryRequest{Path: "/", Ignore: []string{"a", "!b"}})},
		{"ignore", watched(&execwirev1.WatchDirectoryRequest{Path: "/", Ignore: strings.Split(strings.Repeat("x", 101), "")})},
		{"settle", watched(&execwirev1.WatchDirectoryRequest{Path: "/", Settle: seconds(-1)})},
		{"settle", watched(&execwirev1.WatchDirectoryRequest{Path: "/", Settle: seconds(10.1)})},
		{"missing", f.awaitError(&execwirev1.AwaitPathsRequest{})},
		{"missing", f.awaitError(&execwirev1.AwaitPathsRequest{Missing: make([]*execwirev1.AwaitedPath, 1001)})},
		{"missing[0].path", f.awaitError(&execwirev1.AwaitPathsRequest{Missing: []*execwirev1.AwaitedPath{{Path: "x"}}})},
		{"present[1].raw_path", f.awaitError(&execwirev1.AwaitPathsRequest{Present: []*execwirev1.AwaitedPath{{Path: "/"}, {RawPath: []byte("x")}}})},
		{"sandbox.policy", f.awaitError(&execwirev1.AwaitPathsRequest{Missing: []*execwirev1.AwaitedPath{{Path: "/x"}}, Sandbox: &execwirev1.SandboxPolicy{}})},
	}
	for _, tt := range tests {
		expectFailure(t, tt.err, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
		if field := violatedField(tt.err); field != tt.field {
			t.Errorf("the violated field is %q, want %q", field, tt.field)
		}
	}
}
