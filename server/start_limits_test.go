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

// withLimits adds limits to a start request.
func withLimits(limits *execwirev1.ProcessLimits) func(*execwirev1.StartProcessRequest, *execwirev1.DirectCommand) {
	return func(r *execwirev1.StartProcessRequest, _ *execwirev1.DirectCommand) { r.Limits = limits }
}

func withResourceLimits(limits ...*execwirev1.ResourceLimit) func(*execwirev1.StartProcessRequest, *execwirev1.DirectCommand) {
	return withLimits(&execwirev1.ProcessLimits{ResourceLimits: limits})
}

// Every resource of the contract reaches the process.
func TestResourceLimits_EveryResource_ReachesProcess(t *testing.T) {
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
	output := f.watch(&execwirev1.WatchProcessRequest{ProcessId: "p"}).stdout()
	if n := strings.Count(output, " 1234"); n != 2*len(all) { // soft and hard
		t.Errorf("%d of %d limits are in force:\n%s", n, 2*len(all), output)
	}
}

func TestResourceLimits_NotPermitted_NamesField(t *testing.T) {
	f := newFixture(t)
	_, err := f.processes.StartProcess(f.ctx, changed(withResourceLimits(
		&execwirev1.ResourceLimit{Resource: coreBytes}, &execwirev1.ResourceLimit{Resource: openFiles, Soft: 1 << 50})))
	expectFailure(t, err, codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED)
	if field := violatedField(err); field != "limits.resource_limits[1]" {
		t.Errorf("the error names %q", field)
	}
}

func TestRetainedOutput_CanOnlyBeLowered(t *testing.T) {
	const server = 1 << 20
	for asked, want := range map[uint64]int{64 << 10: 64 << 10, server: server, 1 << 62: server} {
		f := newFixture(t)
		req := shell("p", "head -c 3000000 /dev/zero")
		req.Limits = &execwirev1.ProcessLimits{RetainedOutputBytes: &asked}
		f.start(req)
		f.waitClosed("p")
		output := f.watch(&execwirev1.WatchProcessRequest{ProcessId: "p"})
		if got := len(output.stdout()); got > want || got < want/2 || len(output.gaps) != 1 {
			t.Errorf("requested %d bytes, the server retains %d; want at most %d", asked, got, want)
		}
	}
}

func TestNoOutputTimeout_IsExitCause(t *testing.T) {
	f := newFixture(t)
	req := shell("p", "sleep 1000")
	req.Limits = &execwirev1.ProcessLimits{NoOutputTimeout: seconds(0.05)}
	f.start(req)
	if exit := f.waitClosed("p").GetExit(); exit.GetCause() != execwirev1.ExitCause_EXIT_CAUSE_NO_OUTPUT {
		t.Errorf("the process ended with %v", exit)
	}
}

func TestRetainedOutput_Lowered_LowersReportedWindow(t *testing.T) {
	req := command("p", "cat")
	kept := uint64(server.MinRetainedOutputBytes)
	req.Limits = &execwirev1.ProcessLimits{RetainedOutputBytes: &kept}
	if got := newFixture(t).run(req).started.GetOutputWindowBytes(); got != kept {
		t.Errorf("the reported window is %d bytes, want %d", got, kept)
	}
}
