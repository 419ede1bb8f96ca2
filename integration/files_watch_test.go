package integration

import (
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// What processes do to files is told at every door, until the server stops, which
// does not wait for who watches.
func TestWhatProcessesDoToFilesIsTold(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		dir := shortDir(s)
		files := execwirev1.NewFileSystemServiceClient(s.conn)
		changes, err := files.WatchDirectory(s.ctx, &execwirev1.WatchDirectoryRequest{Path: dir, Recursive: true})
		expectStarted(s, err, changes, (*execwirev1.WatchDirectoryResponse).GetStarted)
		never, err := files.AwaitPaths(s.ctx, &execwirev1.AwaitPathsRequest{Missing: []*execwirev1.AwaitedPath{{Path: dir + "/never"}}})
		expectStarted(s, err, never, (*execwirev1.AwaitPathsResponse).GetStarted)
		soon, err := files.AwaitPaths(s.ctx, &execwirev1.AwaitPathsRequest{Missing: []*execwirev1.AwaitedPath{{Path: dir + "/a/b/c"}}})
		expectStarted(s, err, soon, (*execwirev1.AwaitPathsResponse).GetStarted)

		s.run(shell("mkdir -p "+dir+"/a/b && echo x > "+dir+"/a/b/c && ln -s c "+dir+"/a/b/d")).expectEnd(s, 0, noSignal, byItself)
		told := map[string]execwirev1.FileType{}
		for len(told) < 4 {
			message, err := changes.Recv()
			if err != nil {
				s.Fatalf("%v; told was %v", err, told)
			}
			for _, c := range message.GetChanges().GetChanges() {
				told[c.GetPath()] = c.GetType()
			}
		}
		if told["a/b"] != execwirev1.FileType_FILE_TYPE_DIRECTORY || told["a/b/c"] != execwirev1.FileType_FILE_TYPE_REGULAR || told["a/b/d"] != execwirev1.FileType_FILE_TYPE_SYMLINK {
			s.Errorf("told was %v", told)
		}
		if got, err := soon.Recv(); err != nil || !got.GetAwaited().GetExists() {
			s.Errorf("the wait ended with %v, %v", got, err)
		}

		s.server.stop(errStop)
		for err = nil; err == nil; {
			_, err = changes.Recv()
		}
		if reasonOf(err) != "DRAINING" {
			s.Errorf("the watch ended with %v", err)
		}
		if _, err := never.Recv(); reasonOf(err) != "DRAINING" {
			s.Errorf("the wait ended with %v", err)
		}
		s.awaitServed()
	})
}

// expectStarted wants a stream to begin with what says so.
func expectStarted[M, Started any](s *story, err error, stream grpc.ServerStreamingClient[M], started func(*M) *Started) {
	s.Helper()
	if err == nil {
		var first *M
		if first, err = stream.Recv(); err == nil && started(first) != nil {
			return
		}
	}
	s.Fatalf("it does not begin: %v", err)
}

// A session that is resumed over another connection has none of the watches of
// the one before, and their ids are free.
func TestWatchesEndWithTheirConnection(t *testing.T) {
	address := newServer(t, nil).address(websocketDoor)
	dir := shortDir(t)
	first := websocketClient(t, address).initialize("")
	watch := rpcParams{"watchId": 1, "path": dir, "settleMs": 0}
	first.result("fs/watch", watch, &struct{}{})
	first.result("fs/watchMissing", rpcParams{"watchId": 2, "missing": []string{dir + "/f"}}, &struct{}{})
	session := first.session
	first.drop()
	second := websocketClient(t, address).initialize(session)
	if err := os.WriteFile(dir+"/f", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second.result("fs/watch", watch, &struct{}{})
	if err := os.WriteFile(dir+"/g", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second.until("the second watch tells", func(frames []rpcFrame) bool {
		return slices.ContainsFunc(frames, func(f rpcFrame) bool { return strings.Contains(string(f.Params), dir+"/g") })
	})
	if slices.ContainsFunc(second.record(), func(f rpcFrame) bool { return f.Method == "fs/missingChanged" }) {
		t.Errorf("the second connection was told %s", second.said())
	}
}
