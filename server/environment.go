package server

import (
	"context"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/osuser"
)

// environmentService implements execwire.v1.EnvironmentService.
type environmentService struct {
	execwirev1.UnsafeEnvironmentServiceServer
	server *Server
}

var _ execwirev1.EnvironmentServiceServer = (*environmentService)(nil)

// GetEnvironment implements the RPC.
func (s *environmentService) GetEnvironment(ctx context.Context, _ *execwirev1.GetEnvironmentRequest) (*execwirev1.GetEnvironmentResponse, error) {
	sandboxes, working, err := s.server.sandboxes(ctx)
	if err != nil {
		return nil, err
	}
	hostName, _ := os.Hostname()
	workingDirectory, _ := os.Getwd()
	homeDirectory, _ := os.UserHomeDir()
	return &execwirev1.GetEnvironmentResponse{
		ServerVersion:      s.server.cfg.Version,
		OperatingSystem:    runtime.GOOS,
		Architecture:       runtime.GOARCH,
		KernelRelease:      kernelRelease(),
		HostName:           hostName,
		Shell:              osuser.ByUID(os.Getuid()).Shell,
		WorkingDirectory:   workingDirectory,
		HomeDirectory:      homeDirectory,
		TemporaryDirectory: os.TempDir(),
		CpuCount:           uint32(runtime.GOMAXPROCS(0)),
		Limits:             s.server.limits().ServerLimits,
		KillMethod:         killMethods[s.server.cfg.KillMethod],
		Guarded:            s.server.cfg.Guarded,
		DirectCommands:     !s.server.limits().NoDirect,
		PreparedCommands:   !s.server.limits().NoPrepared,
		Features:           s.features(len(working) > 0),
		SandboxBackends:    working,
		Sandboxes:          sandboxes,
		RequiredSandbox:    s.server.cfg.RequiredSandbox,
		LoopbackAnyUser:    s.server.cfg.LoopbackAnyUser,
		InstanceId:         s.server.instance,
	}, nil
}

// features returns the features of the contract that this server has.
func (s *environmentService) features(sandboxed bool) []execwirev1.Feature {
	features := []execwirev1.Feature{
		execwirev1.Feature_FEATURE_PROCESSES,
		execwirev1.Feature_FEATURE_RUN_RESUME,
		execwirev1.Feature_FEATURE_LEASED_SESSIONS,
		execwirev1.Feature_FEATURE_WAIT_CONDITIONS,
		execwirev1.Feature_FEATURE_KILL_TREE,
		execwirev1.Feature_FEATURE_FILES,
		execwirev1.Feature_FEATURE_NO_SYMLINKS,
		execwirev1.Feature_FEATURE_PORTS,
	}
	if s.server.cfg.HTTP != nil {
		features = append(features, execwirev1.Feature_FEATURE_HTTP)
	}
	if sandboxed {
		features = append(features, execwirev1.Feature_FEATURE_SANDBOX)
	}
	return features
}

func kernelRelease() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}
