package execserver

import (
	"context"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// environmentService tells what machine and what server this is, as far as a server
// of the reference does.
type environmentService struct {
	execwirev1.UnimplementedEnvironmentServiceServer
	conn *Conn
}

// environmentInfo is what servers tell in the handshake.
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

// GetEnvironment implements EnvironmentServiceServer. Of an older server hardly
// anything is known.
func (s *environmentService) GetEnvironment(ctx context.Context, _ *execwirev1.GetEnvironmentRequest) (*execwirev1.GetEnvironmentResponse, error) {
	l, err := s.conn.current(ctx)
	if err != nil {
		return nil, err
	}
	response := &execwirev1.GetEnvironmentResponse{
		Features: []execwirev1.Feature{execwirev1.Feature_FEATURE_PROCESSES, execwirev1.Feature_FEATURE_FILES, execwirev1.Feature_FEATURE_HTTP},
	}
	if l.peer.environment == nil {
		return response, nil
	}
	var info environmentInfo
	if err := jsonrpc.DecodeParams(l.peer.environment, &info); err != nil {
		return nil, s.conn.broken(l, protocolErrorf("what the server says of itself cannot be understood: %v", err))
	}
	for _, text := range []struct {
		said *string
		into *string
	}{
		{info.ExecutorVersion, &response.ServerVersion}, {info.PlatformOS, &response.OperatingSystem},
		{info.Cwd, &response.WorkingDirectory}, {info.UserHomeDir, &response.HomeDirectory}, {info.TempDir, &response.TemporaryDirectory},
	} {
		if text.said == nil {
			continue
		}
		*text.into = *text.said
		if native, err := nativePath(*text.said); err == nil {
			*text.into = native
		}
	}
	if info.Shell != nil {
		response.Shell = info.Shell.Path
	}
	return response, nil
}
