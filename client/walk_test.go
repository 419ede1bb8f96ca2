package client

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// fakeTrees is a file system service with walks and watches of the test.
type fakeTrees struct {
	execwirev1.UnimplementedFileSystemServiceServer

	walked  []*execwirev1.WalkDirectoryResponse
	watched []*execwirev1.WatchDirectoryResponse
	err     error // after entries
}

func newFakeTrees(t testing.TB, trees *fakeTrees) *Client {
	t.Helper()
	_, c := newFakeWith(t, func(s *grpc.Server) { execwirev1.RegisterFileSystemServiceServer(s, trees) })
	return c
}

func (f *fakeTrees) WalkDirectory(
	_ *execwirev1.WalkDirectoryRequest, stream grpc.ServerStreamingServer[execwirev1.WalkDirectoryResponse],
) error {
	for _, message := range f.walked {
		if err := stream.Send(message); err != nil {
			return err
		}
	}
	return f.err
}

func (f *fakeTrees) WatchDirectory(
	_ *execwirev1.WatchDirectoryRequest, stream grpc.ServerStreamingServer[execwirev1.WatchDirectoryResponse],
) error {
	for _, message := range f.watched {
		if err := stream.Send(message); err != nil {
			return err
		}
	}
	return f.err
}

func walkEntries(entries ...*execwirev1.WalkEntry) *execwirev1.WalkDirectoryResponse {
	return &execwirev1.WalkDirectoryResponse{Message: &execwirev1.WalkDirectoryResponse_Entries{
		Entries: &execwirev1.WalkEntries{Entries: entries}}}
}

func walkEnd(truncated bool) *execwirev1.WalkDirectoryResponse {
	return &execwirev1.WalkDirectoryResponse{Message: &execwirev1.WalkDirectoryResponse_End{
		End: &execwirev1.WalkEnd{Truncated: truncated}}}
}

func TestWalk_ReturnsAllEntries(t *testing.T) {
	unread := &execwirev1.WalkDirectoryResponse{Message: &execwirev1.WalkDirectoryResponse_Error{
		Error: &execwirev1.WalkError{RawPath: []byte("b\xff"), Message: "permission denied"}}}
	for truncated, want := range map[bool]error{false: nil, true: ErrTruncated} {
		c := newFakeTrees(t, &fakeTrees{walked: []*execwirev1.WalkDirectoryResponse{
			walkEntries(&execwirev1.WalkEntry{Path: "a"}, &execwirev1.WalkEntry{RawPath: []byte("b\xff"), Path: "b"}), unread,
			walkEntries(&execwirev1.WalkEntry{Path: "a/c"}), walkEnd(truncated)}})
		var paths, failed []string
		options := WalkOptions{OnFailed: func(path string, err error) { failed = append(failed, path+": "+err.Error()) }}
		err := c.Walk(t.Context(), "/", options, func(e WalkEntry) error { paths = append(paths, e.Path); return nil })
		if err != want || !slices.Equal(paths, []string{"a", "b\xff", "a/c"}) || !slices.Equal(failed, []string{"b\xff: permission denied"}) {
			t.Errorf("paths %q, failed %q, %v, want %v", paths, failed, err, want)
		}
	}
}

// Paths from a server must stay below the root, and a walk is complete only with an end
// message.
func TestWalk_Incomplete_Fails(t *testing.T) {
	for wantText, messages := range map[string][]*execwirev1.WalkDirectoryResponse{
		`"../x" is not a path`: {walkEntries(&execwirev1.WalkEntry{Path: "../x"}), walkEnd(false)},
		`"/x" is not a path`:   {walkEntries(&execwirev1.WalkEntry{Path: "/x"}), walkEnd(false)},
		`"" is not a path`:     {walkEntries(&execwirev1.WalkEntry{}), walkEnd(false)},
		`"a//b" is not a path`: {walkEntries(&execwirev1.WalkEntry{Path: "a//b"}), walkEnd(false)},
		"without an end":       {walkEntries(&execwirev1.WalkEntry{Path: "a"})},
	} {
		c := newFakeTrees(t, &fakeTrees{walked: messages})
		err := c.Walk(t.Context(), "/", WalkOptions{}, func(WalkEntry) error { return nil })
		if err == nil || !strings.Contains(err.Error(), wantText) {
			t.Errorf("got %v, want %s", err, wantText)
		}
	}
}

func TestWalkAndWatch_CallbackError_Ends(t *testing.T) {
	enough := errors.New("enough")
	refusal := serverError(codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND)
	c := newFakeTrees(t, &fakeTrees{
		walked:  []*execwirev1.WalkDirectoryResponse{walkEntries(&execwirev1.WalkEntry{Path: "a"})},
		watched: []*execwirev1.WatchDirectoryResponse{{Event: &execwirev1.WatchDirectoryResponse_Overflow{Overflow: &execwirev1.WatchOverflow{}}}},
		err:     refusal,
	})
	for _, do := range []error{nil, enough} {
		want := func(err error) bool { return err == enough }
		if do == nil {
			want = func(err error) bool { return Reason(err) == execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND }
		}
		if err := c.Walk(t.Context(), "/", WalkOptions{}, func(WalkEntry) error { return do }); !want(err) {
			t.Errorf("walk: %v", err)
		}
		if err := c.Watch(t.Context(), "/", WatchOptions{}, func(e WatchEvent) error {
			if !e.Overflow {
				t.Errorf("paths %v", e)
			}
			return do
		}); !want(err) {
			t.Errorf("watch: %v", err)
		}
	}
}
