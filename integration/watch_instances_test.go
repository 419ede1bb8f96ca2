package integration

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// instancesUser is nobody else: the system counts the inotify instances of a user.
const instancesUser = 61130

// takeInstances takes all inotify instances of its user, and those that become free.
const takeInstances = `import ctypes, os, time
inotify_init = ctypes.CDLL(None, use_errno=True).inotify_init
while inotify_init() >= 0: pass
os.write(1, b"taken %d\n" % ctypes.get_errno())
while True:
    inotify_init()
    time.sleep(0.001)`

func TestWatch_WithoutInotifyInstances_Works(t *testing.T) {
	server := serveAs(t, instancesUser, 400, 400)
	conn := dial(t, "tcp", server.address(tcpDoor))
	ctx, cancel := context.WithCancelCause(testContext(t))
	defer cancel(nil)
	started, err := execwirev1.NewProcessServiceClient(conn).StartProcess(ctx, &execwirev1.StartProcessRequest{
		ProcessId: "taker",
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
			Direct: &execwirev1.DirectCommand{Argv: []string{"/usr/bin/python3", "-c", takeInstances}, WorkingDirectory: "/", Env: environment()}}}})
	if err != nil {
		t.Fatal(err)
	}
	var said string
	eventually(t, "all instances are taken", func() bool {
		snapshot, err := execwirev1.NewProcessServiceClient(conn).SnapshotOutput(ctx, &execwirev1.SnapshotOutputRequest{ProcessId: started.GetProcess().GetProcessId()})
		if err != nil {
			t.Fatal(err)
		}
		said = string(snapshot.GetStreams()[0].GetHead())
		return strings.HasSuffix(said, "\n")
	})
	if said != "taken 24\n" { // EMFILE
		t.Fatalf("the instances were not taken: %q", said)
	}
	dir := publicDir(t)
	watch, err := execwirev1.NewFileSystemServiceClient(conn).WatchDirectory(ctx, &execwirev1.WatchDirectoryRequest{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatalf("the watch did not begin: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for {
		response, err := watch.Recv()
		if err != nil {
			t.Fatalf("the change was not told: %v", err)
		}
		if strings.Contains(response.String(), "new") {
			return
		}
	}
}
