package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/internal/tracecontext"
	"github.com/execwire/execwire/internal/tracing"
	"github.com/execwire/execwire/server/auditcall"
	"github.com/execwire/execwire/server/fileworker"
)

// confinedFiles implements execwire.v1.FileSystemService. Confined calls are made by
// a worker, which is confined itself; other calls are made here.
type confinedFiles struct {
	*fileSystemService
}

var _ execwirev1.FileSystemServiceServer = (*confinedFiles)(nil)

// worker returns a lease of the worker that makes calls with a policy for a session;
// nil if the call need not be confined. field is where the policy is in the request.
// Whether the policy allows the network does not matter: a worker never has it.
func (s *confinedFiles) worker(ctx context.Context, sessionID, field string, policy *execwirev1.SandboxPolicy) (*fileworker.Lease, error) {
	lease, err := s.lease(ctx, sessionID, field, policy)
	if lease != nil {
		auditcall.Annotate(ctx, func(r *audit.Record) { r.Enforced = auditcall.EnforcedSandbox(toSandboxReport(lease.Report())) })
	}
	return lease, err
}

func (s *confinedFiles) lease(ctx context.Context, sessionID, field string, policy *execwirev1.SandboxPolicy) (*fileworker.Lease, error) {
	plan, err := s.server.plan(ctx, field, policy, serverOptions(s.server.cfg.Environ))
	if err != nil || plan == nil || plan.Unrestricted() {
		return nil, err
	}
	if plan, err = plan.WithoutNetwork().WithProgram(); err != nil {
		return nil, fromSandbox(field, err)
	}
	owner, err := s.server.open(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	key := ""
	if s.server.cfg.Sandboxes != nil {
		key = s.server.cfg.Sandboxes.Key(plan)
	}
	if set, ok := s.server.workerSets.Find(owner); ok {
		if lease, err := set.Find(ctx, key); lease != nil || err != nil { // ErrClosed included
			return lease, fromWorkerStart(field, owner.ID(), err)
		}
	}
	confinement, err := s.server.confine(field, plan) // before another worker is evicted for one that cannot be confined
	if err != nil {
		return nil, err
	}
	span := tracing.FromContext(ctx)
	start := func(ctx context.Context) (worker *sandbox.Worker, err error) {
		began := span.Child("file worker start", tracing.Internal, time.Now())
		defer func() { began.End(err != nil) }()
		return confinement.StartWorker(ctx, s.server.limits().workerArguments(), s.workerEnvironment())
	}
	var lease *fileworker.Lease
	err = s.server.workerSets.Add(owner, func(set *fileworker.Set) (err error) {
		lease, err = set.Use(ctx, key, start)
		return err
	})
	return lease, fromWorkerStart(field, owner.ID(), err)
}

// fromWorkerStart translates the error of starting a worker.
func fromWorkerStart(field, sessionID string, err error) error {
	var limit *fileworker.LimitError
	switch {
	case errors.Is(err, fileworker.ErrClosed):
		return &session.Error{Kind: session.SessionClosed, Subject: sessionID}
	case errors.As(err, &limit):
		return translation{codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FILE_WORKERS}.failure(limit.Error()).
			limit(quota{setting: limit.Setting, unit: "processes"}, int64(limit.Limit)).status()
	}
	return fromSandbox(field, err)
}

// workerEnvironment returns the environment of workers, without secrets.
func (s *confinedFiles) workerEnvironment() []string {
	var environment []string
	for _, entry := range s.server.cfg.Environ {
		name, _, _ := strings.Cut(entry, "=")
		if slices.Contains([]string{"PATH", "TMPDIR", "TMP", "TEMP", "LANG"}, name) || strings.HasPrefix(name, "LC_") {
			environment = append(environment, entry)
		}
	}
	return environment
}

// workerContext returns the context of a call to a worker: only the trace context of
// the metadata is passed on.
func workerContext(ctx context.Context) context.Context {
	kept := metadata.MD{}
	for _, key := range []string{tracecontext.ParentKey, tracecontext.StateKey} {
		if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
			kept[key] = values
		}
	}
	return metadata.NewOutgoingContext(ctx, kept)
}

// workerRequest returns the request for a worker, without the policy and the session.
// It shares fields with the request, so neither must be changed.
func workerRequest[M proto.Message](request M) M {
	from := request.ProtoReflect()
	to := from.New()
	from.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if name := field.Name(); name != "sandbox" && name != "session_id" {
			to.Set(field, value)
		}
		return true
	})
	return to.Interface().(M)
}

// fromWorkerCall translates the error of a call to a worker.
func fromWorkerCall(ctx context.Context, lease *fileworker.Lease, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errorinfo.Of(err) != nil || status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled:
		return err // Unavailable and Canceled can be those of a closed connection
	case lease.Closed():
		return &session.Error{Kind: session.SessionClosed, Subject: session.DefaultID}
	}
	return translation{codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_FILE_WORKER_ENDED}.failure(
		"the worker that made the call ended in the middle of it: what it has done stays; try again").retry(0).status()
}

// confinedCall makes a unary call with a policy, here or by a worker.
func confinedCall[Req interface {
	sandboxed
	proto.Message
}, Res any](ctx context.Context, s *confinedFiles, req Req, here func(context.Context, Req) (Res, error),
	remote func(execwirev1.FileSystemServiceClient, context.Context, Req, ...grpc.CallOption) (Res, error),
) (none Res, err error) {
	lease, err := s.worker(ctx, "", "sandbox", req.GetSandbox())
	if err != nil {
		return none, err
	}
	if lease == nil {
		return here(ctx, req)
	}
	defer lease.Release()
	res, err := remote(execwirev1.NewFileSystemServiceClient(lease.Conn()), workerContext(ctx), workerRequest(req))
	if err != nil {
		return none, fromWorkerCall(ctx, lease, err)
	}
	s.noteContent(contentBytes(req) + contentBytes(res))
	return res, nil
}

// contentBytes returns how much content of a file is in a message.
func contentBytes(m any) int64 {
	if m, ok := m.(interface{ GetData() []byte }); ok {
		return int64(len(m.GetData()))
	}
	return 0
}

// ReadFile implements the RPC.
func (s *confinedFiles) ReadFile(ctx context.Context, req *execwirev1.ReadFileRequest) (*execwirev1.ReadFileResponse, error) {
	return confinedCall(ctx, s, req, s.fileSystemService.ReadFile, execwirev1.FileSystemServiceClient.ReadFile)
}

// WriteFile implements the RPC.
func (s *confinedFiles) WriteFile(ctx context.Context, req *execwirev1.WriteFileRequest) (*execwirev1.WriteFileResponse, error) {
	return confinedCall(ctx, s, req, s.fileSystemService.WriteFile, execwirev1.FileSystemServiceClient.WriteFile)
}

// CreateDirectory implements the RPC.
func (s *confinedFiles) CreateDirectory(ctx context.Context, req *execwirev1.CreateDirectoryRequest) (*execwirev1.CreateDirectoryResponse, error) {
	return confinedCall(ctx, s, req, s.fileSystemService.CreateDirectory, execwirev1.FileSystemServiceClient.CreateDirectory)
}

// GetMetadata implements the RPC.
func (s *confinedFiles) GetMetadata(ctx context.Context, req *execwirev1.GetMetadataRequest) (*execwirev1.GetMetadataResponse, error) {
	return confinedCall(ctx, s, req, s.fileSystemService.GetMetadata, execwirev1.FileSystemServiceClient.GetMetadata)
}

// SetMetadata implements the RPC.
func (s *confinedFiles) SetMetadata(ctx context.Context, req *execwirev1.SetMetadataRequest) (*execwirev1.SetMetadataResponse, error) {
	return confinedCall(ctx, s, req, s.fileSystemService.SetMetadata, execwirev1.FileSystemServiceClient.SetMetadata)
}

// RemovePath implements the RPC.
func (s *confinedFiles) RemovePath(ctx context.Context, req *execwirev1.RemovePathRequest) (*execwirev1.RemovePathResponse, error) {
	return confinedCall(ctx, s, req, s.fileSystemService.RemovePath, execwirev1.FileSystemServiceClient.RemovePath)
}

// CopyPath implements the RPC.
func (s *confinedFiles) CopyPath(ctx context.Context, req *execwirev1.CopyPathRequest) (*execwirev1.CopyPathResponse, error) {
	return confinedCall(ctx, s, req, s.fileSystemService.CopyPath, execwirev1.FileSystemServiceClient.CopyPath)
}

// RenamePath implements the RPC.
func (s *confinedFiles) RenamePath(ctx context.Context, req *execwirev1.RenamePathRequest) (*execwirev1.RenamePathResponse, error) {
	return confinedCall(ctx, s, req, s.fileSystemService.RenamePath, execwirev1.FileSystemServiceClient.RenamePath)
}

// CreateSymlink implements the RPC.
func (s *confinedFiles) CreateSymlink(ctx context.Context, req *execwirev1.CreateSymlinkRequest) (*execwirev1.CreateSymlinkResponse, error) {
	return confinedCall(ctx, s, req, s.fileSystemService.CreateSymlink, execwirev1.FileSystemServiceClient.CreateSymlink)
}

// CanonicalizePath implements the RPC.
func (s *confinedFiles) CanonicalizePath(ctx context.Context, req *execwirev1.CanonicalizePathRequest) (*execwirev1.CanonicalizePathResponse, error) {
	return confinedCall(ctx, s, req, s.fileSystemService.CanonicalizePath, execwirev1.FileSystemServiceClient.CanonicalizePath)
}
