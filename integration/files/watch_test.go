package files

import (
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// Changes by processes are reported over every transport until the server stops. It does not
// wait for watches.
func TestWatch_ReportsChangesByProcesses(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		dir := harness.ShortDir(s)
		files := execwirev1.NewFileSystemServiceClient(s.Conn)
		changes, err := files.WatchDirectory(s.Ctx, &execwirev1.WatchDirectoryRequest{Path: dir, Recursive: true})
		expectStarted(s, err, changes, (*execwirev1.WatchDirectoryResponse).GetStarted)
		never, err := files.AwaitPaths(s.Ctx, &execwirev1.AwaitPathsRequest{Missing: []*execwirev1.AwaitedPath{{Path: dir + "/never"}}})
		expectStarted(s, err, never, (*execwirev1.AwaitPathsResponse).GetStarted)
		soon, err := files.AwaitPaths(s.Ctx, &execwirev1.AwaitPathsRequest{Missing: []*execwirev1.AwaitedPath{{Path: dir + "/a/b/c"}}})
		expectStarted(s, err, soon, (*execwirev1.AwaitPathsResponse).GetStarted)

		s.Run(harness.Shell("mkdir -p "+dir+"/a/b && echo x > "+dir+"/a/b/c && ln -s c "+dir+"/a/b/d")).ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
		told := map[string]execwirev1.FileType{}
		for len(told) < 4 {
			message, err := changes.Recv()
			if err != nil {
				s.Fatalf("%v; received %v", err, told)
			}
			for _, c := range message.GetChanges().GetChanges() {
				told[c.GetPath()] = c.GetType()
			}
		}
		if told["a/b"] != execwirev1.FileType_FILE_TYPE_DIRECTORY || told["a/b/c"] != execwirev1.FileType_FILE_TYPE_REGULAR || told["a/b/d"] != execwirev1.FileType_FILE_TYPE_SYMLINK {
			s.Errorf("received %v", told)
		}
		if got, err := soon.Recv(); err != nil || !got.GetAwaited().GetExists() {
			s.Errorf("the wait ended with %v, %v", got, err)
		}

		s.Server.Stop(harness.ErrStop)
		for err = nil; err == nil; {
			_, err = changes.Recv()
		}
		if harness.ReasonOf(err) != "DRAINING" {
			s.Errorf("the watch ended with %v", err)
		}
		if _, err := never.Recv(); harness.ReasonOf(err) != "DRAINING" {
			s.Errorf("the wait ended with %v", err)
		}
		s.AwaitStopped()
	})
}

// expectStarted checks that a stream begins with its first message.
func expectStarted[M, Started any](s *harness.Scenario, err error, stream grpc.ServerStreamingClient[M], started func(*M) *Started) {
	s.Helper()
	if err == nil {
		var first *M
		if first, err = stream.Recv(); err == nil && started(first) != nil {
			return
		}
	}
	s.Fatalf("it does not begin: %v", err)
}

// A session resumed on another connection has no watches of the previous one, and their ids are
// free.
func TestWatch_ConnectionLost_Ends(t *testing.T) {
	address := harness.NewServer(t, nil).Address(harness.WebsocketTransport)
	dir := harness.ShortDir(t)
	first := harness.WebsocketClient(t, address).Initialize("")
	watch := harness.RPCParams{"watchId": 1, "path": dir, "settleMs": 0}
	first.Result("fs/watch", watch, &struct{}{})
	first.Result("fs/watchMissing", harness.RPCParams{"watchId": 2, "missing": []string{dir + "/f"}}, &struct{}{})
	session := first.Session
	first.Drop()
	second := harness.WebsocketClient(t, address).Initialize(session)
	if err := os.WriteFile(dir+"/f", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second.Result("fs/watch", watch, &struct{}{})
	if err := os.WriteFile(dir+"/g", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second.Until("the second watch tells", func(frames []harness.RPCFrame) bool {
		return slices.ContainsFunc(frames, func(f harness.RPCFrame) bool { return strings.Contains(string(f.Params), dir+"/g") })
	})
	if slices.ContainsFunc(second.Record(), func(f harness.RPCFrame) bool { return f.Method == "fs/missingChanged" }) {
		t.Errorf("the second connection received %s", second.LastFrames())
	}
}
