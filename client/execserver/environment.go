package execserver

import (
	"context"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// environmentService describes the server, as far as the reference does.
type environmentService struct {
	execwirev1.UnimplementedEnvironmentServiceServer
	conn *Conn
}

// environmentInfo is the environmentInfo of the handshake.
type environmentInfo struct {
	Shell *struct {
		Path string `param:"path,optional"`
	} `param:"shell"`
	ExecutorVersion *string `param:"executorVersion"`
	Cwd             *string `param:"cwd"`
	UserHomeDir     *string `param:"userHomeDir"`
	PlatformOS      *string `param:"platformOs"`
	TempDir         *string `param:"tempDir"`
}

// homeDirectory returns the home directory of the server's user, or / if it is not known.
func (l *link) homeDirectory() string {
	var info environmentInfo
	if l.peer.environment == nil || jsonrpc.DecodeParams(l.peer.environment, &info) != nil || info.UserHomeDir == nil {
		return "/"
	}
	home, err := nativePath(*info.UserHomeDir)
	if err != nil {
		return "/"
	}
	return home
}

// GetEnvironment implements EnvironmentServiceServer. Older servers report nothing.
func (s *environmentService) GetEnvironment(ctx context.Context, _ *execwirev1.GetEnvironmentRequest) (*execwirev1.GetEnvironmentResponse, error) {
	l, err := s.conn.current(ctx)
	if err != nil {
		return nil, err
	}
	response := &execwirev1.GetEnvironmentResponse{
		Features: []execwirev1.Feature{execwirev1.Feature_FEATURE_PROCESSES, execwirev1.Feature_FEATURE_FILES},
	}
	if l.peer.environment == nil {
		return response, nil
	}
	var info environmentInfo
	if err := jsonrpc.DecodeParams(l.peer.environment, &info); err != nil {
		return nil, s.conn.broken(l, protocolErrorf("its environmentInfo cannot be understood: %v", err))
	}
	for from, to := range map[*string]*string{
		info.ExecutorVersion: &response.ServerVersion, info.PlatformOS: &response.OperatingSystem,
		info.Cwd: &response.WorkingDirectory, info.UserHomeDir: &response.HomeDirectory, info.TempDir: &response.TemporaryDirectory,
	} {
		if from == nil {
			continue
		}
		*to = *from
		if native, err := nativePath(*from); err == nil {
			*to = native
		}
	}
	if info.Shell != nil {
		response.Shell = info.Shell.Path
	}
	return response, nil
}
