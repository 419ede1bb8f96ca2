// Package admin implements AdminService, which operates a running server.
package admin

import (
	"context"
	"errors"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/secretfile"
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
	var file, setting string
	var line, column int
	if wrong, ok := errors.AsType[*config.Error](err); ok {
		file, line, column, setting = wrong.Source, wrong.Line, wrong.Column, wrong.Setting
	} else if wrong, ok := errors.AsType[*auth.TableError](err); ok {
		file, line, column, setting = wrong.File, wrong.Line, wrong.Column, "principals_file"
	} else if wrong, ok := errors.AsType[*secretfile.Error](err); ok {
		file = wrong.File
	}
	metadata := map[string]string{"file": file, "setting": setting}
	if line > 0 {
		metadata["line"], metadata["column"] = strconv.Itoa(line), strconv.Itoa(column)
	}
	return server.NewStatus(codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_CONFIGURATION_INVALID, err.Error(), metadata)
}
