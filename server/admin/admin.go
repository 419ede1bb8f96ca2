// Package admin implements AdminService, which operates a running server.
package admin

import (
	"context"
	"errors"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/server"
)

// Operations are what the service does with the program that it operates. They are called
// concurrently.
type Operations interface {
	// Reload reads the configuration again, applies what can change, and returns all
	// settings that differed. After an error nothing has changed.
	Reload(ctx context.Context) ([]config.Change, error)
}

// Register registers the service with a gRPC server or an in-process channel.
func Register(r grpc.ServiceRegistrar, operations Operations) {
	execwirev1.RegisterAdminServiceServer(r, &service{operations: operations})
}

// service implements execwire.v1.AdminService.
type service struct {
	execwirev1.UnsafeAdminServiceServer
	operations Operations
}

var _ execwirev1.AdminServiceServer = (*service)(nil)

// Reload implements the RPC.
func (s *service) Reload(ctx context.Context, _ *execwirev1.ReloadRequest) (*execwirev1.ReloadResponse, error) {
	changes, err := s.operations.Reload(ctx)
	if err != nil {
		return nil, invalidConfiguration(err)
	}
	response := &execwirev1.ReloadResponse{}
	for _, c := range changes {
		change := &execwirev1.SettingChange{Setting: c.Setting, OldValue: c.Old, NewValue: c.New}
		if c.Reload {
			response.Applied = append(response.Applied, change)
		} else {
			response.NeedsRestart = append(response.NeedsRestart, change)
		}
	}
	return response, nil
}

// invalidConfiguration returns the status of an error in the configuration. Callers may
// know its text: it has no secrets, and they can read the configuration by other calls.
func invalidConfiguration(err error) error {
	metadata := map[string]string{}
	if wrong, ok := errors.AsType[*config.Error](err); ok {
		metadata["setting"] = wrong.Setting
		if metadata["file"] = wrong.Source; wrong.Line > 0 {
			metadata["line"], metadata["column"] = strconv.Itoa(wrong.Line), strconv.Itoa(wrong.Column)
		}
	}
	return server.NewStatus(codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_CONFIGURATION_INVALID, err.Error(), metadata)
}
