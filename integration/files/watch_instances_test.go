package files

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// instancesUser is a user of its own: the system counts the inotify instances of a user.
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
	t.Run("unconfined", func(t *testing.T) {
		server := harness.ServeAs(t, instancesUser, 400, 400)
		conn := harness.Dial(t, "tcp", server.Address(harness.TCPTransport))
		useAllInstances(t, conn)
		watchReportsChange(t, conn, harness.PublicDir(t), nil)
	})
	for _, backend := range []string{"landlock", "bubblewrap"} {
		t.Run(backend, func(t *testing.T) {
			server := harness.ServeAs(t, instancesUser, 400, 400, "EXECWIRE_SANDBOX_BACKENDS="+backend)
			conn := harness.Dial(t, "tcp", server.Address(harness.TCPTransport))
			useAllInstances(t, conn)
			dir := harness.PublicDir(t)
			watchReportsChange(t, conn, dir, harness.ReadOnly())
			awaitReportsChange(t, conn, dir, harness.ReadOnly())
		})
	}
}

// A worker releases its inotify instance: more workers than there are instances in reserve can
// watch one after the other.
func TestWatch_WithReservedInstancesThatWereUsed_Works(t *testing.T) {
	server := harness.ServeAs(t, instancesUser, 400, 400, "EXECWIRE_SANDBOX_BACKENDS=landlock", "EXECWIRE_FILE_WORKERS_PER_PRINCIPAL=1")
	conn := harness.Dial(t, "tcp", server.Address(harness.TCPTransport))
	useAllInstances(t, conn)
	for range 10 { // the reserve has 8 at most
		dir := harness.PublicDir(t)
		policy := harness.OnlyWritable(dir) // which has a helper of its own
		harness.Eventually(t, "the helper of the watch before gives way", func() bool {
			_, err := execwirev1.NewFileSystemServiceClient(conn).GetMetadata(harness.Context(t), &execwirev1.GetMetadataRequest{Path: dir, Sandbox: policy})
			return err == nil
		})
		watchReportsChange(t, conn, dir, policy)
	}
}

// useAllInstances makes a process of the server use all inotify instances of its user.
func useAllInstances(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	ctx := harness.Context(t)
	started, err := execwirev1.NewProcessServiceClient(conn).StartProcess(ctx, &execwirev1.StartProcessRequest{
		ProcessId: "taker",
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
			Direct: &execwirev1.DirectCommand{Argv: []string{"/usr/bin/python3", "-c", takeInstances}, WorkingDirectory: "/", Env: harness.Environment()}}}})
	if err != nil {
		t.Fatal(err)
	}
	var printed string
	harness.Eventually(t, "all instances are taken", func() bool {
		snapshot, err := execwirev1.NewProcessServiceClient(conn).SnapshotOutput(ctx, &execwirev1.SnapshotOutputRequest{ProcessId: started.GetProcess().GetProcessId()})
		if err != nil {
			t.Fatal(err)
		}
		printed = string(snapshot.GetStreams()[0].GetHead())
		return strings.HasSuffix(printed, "\n")
	})
	if printed != "taken 24\n" { // EMFILE
		t.Fatalf("the instances were not taken: %q", printed)
	}
}

// watchReportsChange watches a directory until a new file is reported.
func watchReportsChange(t *testing.T, conn *grpc.ClientConn, dir string, policy *execwirev1.SandboxPolicy) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(harness.Context(t))
	defer cancel(nil)
	watch, err := execwirev1.NewFileSystemServiceClient(conn).WatchDirectory(ctx, &execwirev1.WatchDirectoryRequest{Path: dir, Sandbox: policy})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatalf("the watch did not begin: %v", err)
	}
	create(t, filepath.Join(dir, "new"))
	for {
		response, err := watch.Recv()
		if err != nil {
			t.Fatalf("the change was not reported: %v", err)
		}
		if strings.Contains(response.String(), `"new"`) {
			return
		}
	}
}

// awaitReportsChange waits for a file in a directory.
func awaitReportsChange(t *testing.T, conn *grpc.ClientConn, dir string, policy *execwirev1.SandboxPolicy) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(harness.Context(t))
	defer cancel(nil)
	path := filepath.Join(dir, "awaited")
	wait, err := execwirev1.NewFileSystemServiceClient(conn).AwaitPaths(ctx, &execwirev1.AwaitPathsRequest{Missing: []*execwirev1.AwaitedPath{{Path: path}}, Sandbox: policy})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wait.Recv(); err != nil {
		t.Fatalf("the wait did not begin: %v", err)
	}
	create(t, path)
	if _, err := wait.Recv(); err != nil {
		t.Fatalf("the path was not reported: %v", err)
	}
}

func create(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
