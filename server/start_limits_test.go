package server_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/server"
)

const (
	openFiles = execwirev1.LimitedResource_LIMITED_RESOURCE_OPEN_FILES
	coreBytes = execwirev1.LimitedResource_LIMITED_RESOURCE_CORE_BYTES
)

// withLimits changes a start request to one with these limits.
func withLimits(limits *execwirev1.ProcessLimits) func(*execwirev1.StartProcessRequest, *execwirev1.DirectCommand) {
	return func(r *execwirev1.StartProcessRequest, _ *execwirev1.DirectCommand) { r.Limits = limits }
}

func withResourceLimits(limits ...*execwirev1.ResourceLimit) func(*execwirev1.StartProcessRequest, *execwirev1.DirectCommand) {
	return withLimits(&execwirev1.ProcessLimits{ResourceLimits: limits})
}

// Every resource of the contract reaches the process: none is forgotten here
// when one is added there.
func TestEveryResourceCanBeLimited(t *testing.T) {
	f := newFixture(t)
	small := map[execwirev1.LimitedResource]bool{
		openFiles: true,
		execwirev1.LimitedResource_LIMITED_RESOURCE_USER_PROCESSES: true,
		execwirev1.LimitedResource_LIMITED_RESOURCE_LOCKED_BYTES:   true,
	}
	var all []*execwirev1.ResourceLimit
	for value := range execwirev1.LimitedResource_name {
		limit := &execwirev1.ResourceLimit{Resource: execwirev1.LimitedResource(value), Soft: 123456789}
		if small[limit.Resource] {
			limit.Soft = 1234
		}
		if value != 0 {
			all = append(all, limit)
		}
	}
	req := command("p", "cat", "/proc/self/limits")
	req.Limits = &execwirev1.ProcessLimits{ResourceLimits: all}
	f.start(req)
	said := f.watch(&execwirev1.WatchProcessRequest{ProcessId: "p"}).stdout()
	if n := strings.Count(said, " 1234"); n != 2*len(all) { // soft and hard
		t.Errorf("%d of %d limits are in force:\n%s", n, 2*len(all), said)
	}
}

func TestALimitThatIsNotPermittedIsNamed(t *testing.T) {
	f := newFixture(t)
	_, err := f.processes.StartProcess(f.ctx, changed(withResourceLimits(
		&execwirev1.ResourceLimit{Resource: coreBytes}, &execwirev1.ResourceLimit{Resource: openFiles, Soft: 1 << 50})))
	expectFailure(t, err, codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED)
	if field := violatedField(err); field != "limits.resource_limits[1]" {
		t.Errorf("the error names %q", field)
	}
}

// A process can have less of its output kept, and not more.
func TestRetainedOutputIsOnlyLowered(t *testing.T) {
	const server = 1 << 20
	for asked, want := range map[uint64]int{64 << 10: 64 << 10, server: server, 1 << 62: server} {
		f := newFixture(t)
		req := shell("p", "head -c 3000000 /dev/zero")
		req.Limits = &execwirev1.ProcessLimits{RetainedOutputBytes: &asked}
		f.start(req)
		f.waitClosed("p")
		said := f.watch(&execwirev1.WatchProcessRequest{ProcessId: "p"})
		if got := len(said.stdout()); got > want || got < want/2 || len(said.gaps) != 1 {
			t.Errorf("asked to keep %d, the server keeps %d; want %d at most", asked, got, want)
		}
	}
}

func TestSilenceIsACause(t *testing.T) {
	f := newFixture(t)
	req := shell("p", "sleep 1000")
	req.Limits = &execwirev1.ProcessLimits{NoOutputTimeout: seconds(0.05)}
	f.start(req)
	if exit := f.waitClosed("p").GetExit(); exit.GetCause() != execwirev1.ExitCause_EXIT_CAUSE_NO_OUTPUT {
		t.Errorf("the process ended with %v", exit)
	}
}

// The window of a process that keeps less is smaller, and its owner is told so.
func TestALoweredWindowIsReported(t *testing.T) {
	req := command("p", "cat")
	kept := uint64(server.MinRetainedOutputBytes)
	req.Limits = &execwirev1.ProcessLimits{RetainedOutputBytes: &kept}
	if got := newFixture(t).run(req).started.GetOutputWindowBytes(); got != kept {
		t.Errorf("the window is said to be %d bytes, want %d", got, kept)
	}
}
