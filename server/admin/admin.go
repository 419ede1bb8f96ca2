// Package admin implements AdminService, which operates a running server.
package admin

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/secretfile"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/server"
)

// Operations are what the service does with the program that it operates. They are called
// concurrently.
type Operations interface {
	// Reload reads the configuration again, applies what can change, and returns all
	// settings that differed. After an error nothing has changed.
	Reload(ctx context.Context) ([]config.Change, error)
	// BeginUpgrade begins to replace the program by the one at a path, or by the one at its
	// own path if that is empty. After an error nothing has changed.
	BeginUpgrade(ctx context.Context, id, path string) (Upgrade, error)
	// Upgrade returns the last upgrade if it has the id.
	Upgrade(id string) (upgrade Upgrade, found bool)
}

// Upgrade is the replacement of the program by another one.
type Upgrade struct {
	// ID is the id that the caller chose.
	ID string
	// Previous is the version of the program before, and Version that of the new one.
	Previous, Version string
	// Running is whether the upgrade is neither done nor has failed.
	Running bool
	// Err is why the program before goes on; nil if it does not.
	Err error
	// Pause is how long the server did not serve.
	Pause time.Duration
}

// Counts are what a server has done since its program started.
type Counts struct {
	// Started are processes that were started, and FailedStarts starts that have failed.
	Started, FailedStarts uint64
	// StartTimes are the times of starts, and CallTimes those of calls that do not wait.
	StartTimes, CallTimes Durations
}

// Durations are numbers of events by how long they took.
type Durations struct {
	// Bounds are the upper bounds of the classes in seconds, and Counts the events of each,
	// and of one more without a bound.
	Bounds []float64
	Counts []uint64
}

// Config is what the service operates. Fields without a comment on nil are required.
type Config struct {
	// Operations operate the program.
	Operations Operations
	// Sessions are those of the server.
	Sessions *session.Registry
	// Counts returns what the server has done. It is called concurrently, and must not block.
	Counts func() Counts
	// Audit is the audit log; nil if there is none.
	Audit *audit.Log
}

// Register registers the service with a gRPC server or an in-process channel.
func Register(r grpc.ServiceRegistrar, config Config) {
	execwirev1.RegisterAdminServiceServer(r, &service{operations: config.Operations, sessions: config.Sessions, counts: config.Counts, audit: config.Audit,
		profiler: profiler{taken: map[execwirev1.ProfileKind]bool{}}})
}

// service implements execwire.v1.AdminService.
type service struct {
	execwirev1.UnsafeAdminServiceServer
	operations Operations
	sessions   *session.Registry
	counts     func() Counts
	audit      *audit.Log // nil: there is none
	profiler   profiler
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

// Upgrade implements the RPC.
func (s *service) Upgrade(ctx context.Context, req *execwirev1.UpgradeRequest) (*execwirev1.UpgradeResponse, error) {
	upgrade, err := s.operations.BeginUpgrade(ctx, req.GetUpgradeId(), req.GetBinary())
	if err != nil {
		return nil, server.NewStatus(codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_UPGRADE_REFUSED, err.Error(), nil)
	}
	return &execwirev1.UpgradeResponse{Upgrade: toUpgrade(upgrade)}, nil
}

// GetUpgrade implements the RPC.
func (s *service) GetUpgrade(_ context.Context, req *execwirev1.GetUpgradeRequest) (*execwirev1.GetUpgradeResponse, error) {
	upgrade, found := s.operations.Upgrade(req.GetUpgradeId())
	if !found {
		return nil, server.NewStatus(codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_UPGRADE_NOT_FOUND,
			"there is no such upgrade: another one followed, or the server was restarted", nil)
	}
	return &execwirev1.GetUpgradeResponse{Upgrade: toUpgrade(upgrade)}, nil
}

func toUpgrade(u Upgrade) *execwirev1.Upgrade {
	m := &execwirev1.Upgrade{UpgradeId: u.ID, PreviousVersion: u.Previous, Version: u.Version}
	switch {
	case u.Running:
		m.State = execwirev1.UpgradeState_UPGRADE_STATE_RUNNING
		return m
	case u.Err != nil:
		m.State, m.Error = execwirev1.UpgradeState_UPGRADE_STATE_FAILED, u.Err.Error()
	default:
		m.State = execwirev1.UpgradeState_UPGRADE_STATE_DONE
	}
	m.Pause = durationpb.New(u.Pause)
	return m
}
