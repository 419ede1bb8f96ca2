package server

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/internal/tracecontext"
	"github.com/execwire/execwire/server/filehelper"
)

// confinedFiles implements execwire.v1.FileSystemService. A call that is to be
// confined is made by a helper, which is confined itself; any other is made here.
type confinedFiles struct {
	*fileSystemService
}

var _ execwirev1.FileSystemServiceServer = (*confinedFiles)(nil)

// helpersKey is what the helpers of a session are found by in it.
type helpersKey struct{}

// helper returns a lease of the helper that makes a call with a policy, which is in
// a field of the request, for a session; nil if nothing of the call has to be
// confined. For files it does not matter whether the network is reached: a helper
// never reaches it.
func (s *confinedFiles) helper(ctx context.Context, sessionID, field string, policy *execwirev1.SandboxPolicy) (*filehelper.Lease, error) {
	plan, err := s.server.plan(ctx, field, policy, sandbox.Surroundings{TmpDir: s.server.environ("TMPDIR")})
	if err != nil || plan == nil || plan.Unrestricted() {
		return nil, err
	}
	if plan, err = plan.WithoutNetwork().WithProgram(); err != nil {
		return nil, inPolicy(field, err)
	}
	owner, err := s.server.open(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	key := ""
	if s.server.cfg.Sandboxes != nil {
		key = s.server.cfg.Sandboxes.Key(plan)
	}
	if set, ok := owner.Belonging(helpersKey{}).(*filehelper.Set); ok {
		if lease, err := set.Find(ctx, key); lease != nil || err != nil { // also when nothing is to be begun any more
			return lease, fromHelpers(field, owner.ID(), err)
		}
	}
	confinement, err := s.server.confine(field, plan) // before another helper gives way to one that cannot be
	if err != nil {
		return nil, err
	}
	start := func(ctx context.Context) (*sandbox.Helper, error) {
		return confinement.StartHelper(ctx, s.server.helperArguments(), s.server.helperEnvironment())
	}
	var lease *filehelper.Lease
	err = owner.AddTo(helpersKey{}, s.newHelpers, func(b session.Belonging) (err error) {
		lease, err = b.(*filehelper.Set).Use(ctx, key, start)
		return err
	})
	return lease, fromHelpers(field, owner.ID(), err)
}

func (s *confinedFiles) newHelpers(owner *session.Session, emptied func()) session.Belonging {
	return s.server.helpers.NewSet(owner.Principal(), emptied)
}

// fromHelpers translates why there is no helper.
func fromHelpers(field, sessionID string, err error) error {
	var limit *filehelper.LimitError
	switch {
	case errors.Is(err, filehelper.ErrClosed):
		return &session.Error{Kind: session.SessionClosed, Subject: sessionID}
	case errors.As(err, &limit):
		metadata := map[string]string{}
		details := quota{setting: limit.Setting, unit: "processes"}.describe(int64(limit.Limit), metadata)
		return failure(codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FILE_HELPERS, metadata, limit.Error(), details...)
	}
	return inPolicy(field, err)
}

// environ looks a variable of the server up.
func (s *Server) environ(name string) string {
	for _, entry := range slices.Backward(s.cfg.Environ) {
		if value, is := strings.CutPrefix(entry, name+"="); is {
			return value
		}
	}
	return ""
}

// helperEnvironment is the environment of helpers: nothing of it is a secret.
func (s *Server) helperEnvironment() []string {
	var environment []string
	for _, entry := range s.cfg.Environ {
		name, _, _ := strings.Cut(entry, "=")
		if slices.Contains([]string{"PATH", "TMPDIR", "TMP", "TEMP", "LANG"}, name) || strings.HasPrefix(name, "LC_") {
			environment = append(environment, entry)
		}
	}
	return environment
}

// forwarded is the context of a call to a helper: that of the call, with where it
// is in its trace and nothing else that the caller has shown.
func forwarded(ctx context.Context) context.Context {
	kept := metadata.MD{}
	for _, key := range []string{tracecontext.ParentKey, tracecontext.StateKey} {
		if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
			kept[key] = values
		}
	}
	return metadata.NewOutgoingContext(ctx, kept)
}

// stripped is a request as a helper gets it: confined already, in its only session.
// It shares what the request has, so neither is to be changed.
func stripped[M proto.Message](request M) M {
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

// fromHelper says why a call to a helper has failed: as the helper says, or as a
// call that is made here would.
func fromHelper(ctx context.Context, lease *filehelper.Lease, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case reasonOf(err) != "" || status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled:
		return err // the latter is of a connection that was closed
	case lease.Closed():
		return &session.Error{Kind: session.SessionClosed, Subject: session.DefaultID}
	}
	return failure(codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_FILE_HELPER_ENDED, nil,
		"the helper that made the call ended in the middle of it: what it has done stays; try again",
		&errdetails.RetryInfo{RetryDelay: durationpb.New(0)})
}

// confined makes a unary call with a policy: here, or by a helper.
func confined[Req interface {
	sandboxed
	proto.Message
}, Res any](ctx context.Context, s *confinedFiles, req Req, here func(context.Context, Req) (Res, error),
	remote func(execwirev1.FileSystemServiceClient, context.Context, Req, ...grpc.CallOption) (Res, error),
) (none Res, err error) {
	lease, err := s.helper(ctx, "", "sandbox", req.GetSandbox())
	if err != nil {
		return none, err
	}
	if lease == nil {
		return here(ctx, req)
	}
	defer lease.Release()
	res, err := remote(execwirev1.NewFileSystemServiceClient(lease.Conn()), forwarded(ctx), stripped(req))
	if err != nil {
		return none, fromHelper(ctx, lease, err)
	}
	s.moved(dataOf(req) + dataOf(res))
	return res, nil
}

// dataOf is how much content of files is in a message.
func dataOf(m any) int64 {
	if m, ok := m.(interface{ GetData() []byte }); ok {
		return int64(len(m.GetData()))
	}
	return 0
}

// ReadFile implements the RPC.
func (s *confinedFiles) ReadFile(ctx context.Context, req *execwirev1.ReadFileRequest) (*execwirev1.ReadFileResponse, error) {
	return confined(ctx, s, req, s.fileSystemService.ReadFile, execwirev1.FileSystemServiceClient.ReadFile)
}

// WriteFile implements the RPC.
func (s *confinedFiles) WriteFile(ctx context.Context, req *execwirev1.WriteFileRequest) (*execwirev1.WriteFileResponse, error) {
	return confined(ctx, s, req, s.fileSystemService.WriteFile, execwirev1.FileSystemServiceClient.WriteFile)
}

// CreateDirectory implements the RPC.
func (s *confinedFiles) CreateDirectory(ctx context.Context, req *execwirev1.CreateDirectoryRequest) (*execwirev1.CreateDirectoryResponse, error) {
	return confined(ctx, s, req, s.fileSystemService.CreateDirectory, execwirev1.FileSystemServiceClient.CreateDirectory)
}

// GetMetadata implements the RPC.
func (s *confinedFiles) GetMetadata(ctx context.Context, req *execwirev1.GetMetadataRequest) (*execwirev1.GetMetadataResponse, error) {
	return confined(ctx, s, req, s.fileSystemService.GetMetadata, execwirev1.FileSystemServiceClient.GetMetadata)
}

// RemovePath implements the RPC.
func (s *confinedFiles) RemovePath(ctx context.Context, req *execwirev1.RemovePathRequest) (*execwirev1.RemovePathResponse, error) {
	return confined(ctx, s, req, s.fileSystemService.RemovePath, execwirev1.FileSystemServiceClient.RemovePath)
}

// CopyPath implements the RPC.
func (s *confinedFiles) CopyPath(ctx context.Context, req *execwirev1.CopyPathRequest) (*execwirev1.CopyPathResponse, error) {
	return confined(ctx, s, req, s.fileSystemService.CopyPath, execwirev1.FileSystemServiceClient.CopyPath)
}

// RenamePath implements the RPC.
func (s *confinedFiles) RenamePath(ctx context.Context, req *execwirev1.RenamePathRequest) (*execwirev1.RenamePathResponse, error) {
	return confined(ctx, s, req, s.fileSystemService.RenamePath, execwirev1.FileSystemServiceClient.RenamePath)
}

// CreateSymlink implements the RPC.
func (s *confinedFiles) CreateSymlink(ctx context.Context, req *execwirev1.CreateSymlinkRequest) (*execwirev1.CreateSymlinkResponse, error) {
	return confined(ctx, s, req, s.fileSystemService.CreateSymlink, execwirev1.FileSystemServiceClient.CreateSymlink)
}

// CanonicalizePath implements the RPC.
func (s *confinedFiles) CanonicalizePath(ctx context.Context, req *execwirev1.CanonicalizePathRequest) (*execwirev1.CanonicalizePathResponse, error) {
	return confined(ctx, s, req, s.fileSystemService.CanonicalizePath, execwirev1.FileSystemServiceClient.CanonicalizePath)
}
