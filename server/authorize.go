package server

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/protoadapt"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
)

// need is what a call needs.
type need struct {
	permission auth.Permissions // nothing beyond being somebody, if zero
	open       bool             // it is anybody's, without being looked at
	local      bool             // it is not there for callers that come by TLS or through the relay
}

// needs says what every call needs, by full method. A call that is not in it is
// not there; a test proves it complete.
var needs = map[string]need{
	execwirev1.ProcessService_GetProcess_FullMethodName:       {permission: auth.View},
	execwirev1.ProcessService_ListProcesses_FullMethodName:    {permission: auth.View},
	execwirev1.ProcessService_WatchProcess_FullMethodName:     {permission: auth.View},
	execwirev1.ProcessService_ReadOutput_FullMethodName:       {permission: auth.View},
	execwirev1.ProcessService_SnapshotOutput_FullMethodName:   {permission: auth.View},
	execwirev1.ProcessService_WaitProcess_FullMethodName:      {permission: auth.View},
	execwirev1.ProcessService_StartProcess_FullMethodName:     {permission: auth.Start},
	execwirev1.ProcessService_RunProcess_FullMethodName:       {permission: auth.Start},
	execwirev1.ProcessService_WriteStdin_FullMethodName:       {permission: auth.Control},
	execwirev1.ProcessService_CloseStdin_FullMethodName:       {permission: auth.Control},
	execwirev1.ProcessService_ResizeTerminal_FullMethodName:   {permission: auth.Control},
	execwirev1.ProcessService_SignalProcess_FullMethodName:    {permission: auth.Control},
	execwirev1.ProcessService_TerminateProcess_FullMethodName: {permission: auth.Control},
	execwirev1.SessionService_AttachSession_FullMethodName:    {permission: auth.Session},
	execwirev1.SessionService_ListSessions_FullMethodName:     {permission: auth.Session},
	execwirev1.SessionService_CloseSession_FullMethodName:     {permission: auth.Session},
	execwirev1.SessionService_GrantSession_FullMethodName:     {permission: auth.Session},

	execwirev1.FileSystemService_ReadFile_FullMethodName:         {permission: auth.ReadFiles},
	execwirev1.FileSystemService_DownloadFile_FullMethodName:     {permission: auth.ReadFiles},
	execwirev1.FileSystemService_GetMetadata_FullMethodName:      {permission: auth.ReadFiles},
	execwirev1.FileSystemService_ReadDirectory_FullMethodName:    {permission: auth.ReadFiles},
	execwirev1.FileSystemService_CanonicalizePath_FullMethodName: {permission: auth.ReadFiles},
	execwirev1.FileSystemService_WalkDirectory_FullMethodName:    {permission: auth.ReadFiles},
	execwirev1.FileSystemService_WatchDirectory_FullMethodName:   {permission: auth.ReadFiles},
	execwirev1.FileSystemService_AwaitPaths_FullMethodName:       {permission: auth.ReadFiles},
	execwirev1.FileSystemService_WriteFile_FullMethodName:        {permission: auth.WriteFiles},
	execwirev1.FileSystemService_UploadFile_FullMethodName:       {permission: auth.WriteFiles},
	execwirev1.FileSystemService_GetUpload_FullMethodName:        {permission: auth.WriteFiles},
	execwirev1.FileSystemService_CreateDirectory_FullMethodName:  {permission: auth.WriteFiles},
	execwirev1.FileSystemService_RemovePath_FullMethodName:       {permission: auth.WriteFiles},
	execwirev1.FileSystemService_RenamePath_FullMethodName:       {permission: auth.WriteFiles},
	execwirev1.FileSystemService_CreateSymlink_FullMethodName:    {permission: auth.WriteFiles},
	execwirev1.FileSystemService_CopyPath_FullMethodName:         {permission: auth.WriteFiles},
	execwirev1.FileSystemService_OpenFile_FullMethodName:         {permission: auth.ReadFiles},
	execwirev1.FileSystemService_ReadBlock_FullMethodName:        {permission: auth.ReadFiles},
	execwirev1.FileSystemService_CloseFile_FullMethodName:        {permission: auth.ReadFiles},
	execwirev1.FileSystemService_WriteBlock_FullMethodName:       {permission: auth.WriteFiles},

	execwirev1.HttpService_Fetch_FullMethodName: {permission: auth.HTTP},

	execwirev1.EnvironmentService_GetEnvironment_FullMethodName: {permission: auth.Environment},

	healthpb.Health_Check_FullMethodName: {open: true},
	healthpb.Health_List_FullMethodName:  {open: true},
	healthpb.Health_Watch_FullMethodName: {open: true},

	reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      {local: true},
	reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: {local: true},
}

// IsAnybodys reports whether a call, by its full method, is made without looking
// at who makes it.
func IsAnybodys(method string) bool { return needs[method].open }

// authorize puts the principal of a call into its context, if it may make the
// call.
func (s *Server) authorize(ctx context.Context) (context.Context, error) {
	method, _ := grpc.Method(ctx)
	need, known := needs[method]
	switch {
	case need.open:
		return ctx, nil
	case need.local && cameFromAfar(ctx):
		return nil, notImplemented(method)
	}
	caller, err := s.cfg.Authenticate(ctx)
	record := callRecordOf(ctx)
	record.principal, record.via, record.refusal = caller.Principal, caller.Via, err
	if err := mayCall(caller, err, method, need, known); err != nil {
		return nil, err
	}
	ctx = context.WithValue(ctx, permissionsKey{}, caller.May)
	return auth.WithPrincipal(ctx, caller.Principal), nil
}

// permissionsKey is what the permissions of a caller are found by in the context
// of a call.
type permissionsKey struct{}

// needOf is what a request needs beyond what its method does.
func needOf(req any) auth.Permissions {
	if m, ok := req.(*execwirev1.OpenFileRequest); ok && m.GetMode() == execwirev1.OpenMode_OPEN_MODE_REPLACE {
		return auth.WriteFiles
	}
	return 0
}

// authorizeRequest checks what [authorize] could not know yet.
func authorizeRequest(ctx context.Context, req any) error {
	need := need{permission: needOf(req)}
	if need.permission == 0 {
		return nil
	}
	principal, err := auth.FromContext(ctx)
	may, _ := ctx.Value(permissionsKey{}).(auth.Permissions)
	return mayCall(auth.Caller{Principal: principal, May: may}, err, "", need, true)
}

// MayCall returns the status that says why somebody may not make a call, by its
// full method, with a request, which is nil for a call of many; or nil. It is for
// what makes calls to another server for callers of its own: err is why the
// caller was not found out, or nil.
func MayCall(caller auth.Caller, err error, method string, req any) error {
	need, known := needs[method]
	need.permission |= needOf(req)
	return mayCall(caller, err, method, need, known)
}

func mayCall(caller auth.Caller, err error, method string, need need, known bool) error {
	switch {
	case err != nil:
		return fromAuth(err)
	case caller.Principal.IsZero():
		return fromAuth(errNobody)
	case !known:
		return notImplemented(method)
	case !caller.May.Has(need.permission):
		name := need.permission.String()
		return failure(codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_CALL_NOT_ALLOWED, map[string]string{"permission": name},
			caller.Principal.String()+" may not do this: the table of principals does not give it the permission \""+name+"\"")
	}
	return nil
}

// errNobody is an authenticator's that lets nobody in without saying why.
var errNobody = &auth.Error{Kind: auth.KindNoPrincipal, Subject: "caller", Err: errors.New("nobody was identified")}

// cameFromAfar reports whether a call came by TLS or through the relay.
func cameFromAfar(ctx context.Context) bool {
	p, ok := peer.FromContext(ctx)
	return ok && p.AuthInfo != nil && (p.AuthInfo.AuthType() == "tls" || p.AuthInfo.AuthType() == "relay")
}

// unauthenticated is all that a caller is told who was not let in: which part
// of what it showed was wrong is in the log.
const unauthenticated = "the caller is not known here: show a token or a certificate that the server's table of principals has"

// authErrors translates the kinds of package auth; a test proves it complete.
var authErrors = map[auth.Kind]translation{
	auth.KindNoPrincipal:         {codes.Unauthenticated, execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED},
	auth.KindPeerUnknown:         {codes.Unauthenticated, execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED},
	auth.KindCredentialMissing:   {codes.Unauthenticated, execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED},
	auth.KindHeaderInvalid:       {codes.Unauthenticated, execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED},
	auth.KindTokenInvalid:        {codes.Unauthenticated, execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED},
	auth.KindTokenExpired:        {codes.Unauthenticated, execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED},
	auth.KindTokenNotYetValid:    {codes.Unauthenticated, execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED},
	auth.KindIssuerMismatch:      {codes.Unauthenticated, execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED},
	auth.KindAudienceMismatch:    {codes.Unauthenticated, execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED},
	auth.KindNotListed:           {codes.Unauthenticated, execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED},
	auth.KindCredentialsDisagree: {codes.Unauthenticated, execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED},
	auth.KindCertificateExpired:  {codes.Unauthenticated, execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED},
	auth.KindOnBehalfOfRefused:   {codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_ON_BEHALF_OF_REFUSED},
	auth.KindPeerRefused:         {codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_PEER_REFUSED},
	auth.KindTooManyAttempts:     {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FAILED_ATTEMPTS},
	auth.KindTooManyConnections:  {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_CONNECTIONS},
}

// fromAuth translates why a caller was not let in.
func fromAuth(err error) error {
	var typed *auth.Error
	t, ok := translation{}, false
	if errors.As(err, &typed) {
		t, ok = authErrors[typed.Kind]
	}
	if !ok {
		t = authErrors[auth.KindNoPrincipal]
	}
	text, details := unauthenticated, []protoadapt.MessageV1(nil)
	metadata := map[string]string{}
	switch t.reason {
	case execwirev1.ErrorReason_ERROR_REASON_ON_BEHALF_OF_REFUSED:
		text = "the caller may not act on behalf of whom it named"
	case execwirev1.ErrorReason_ERROR_REASON_PEER_REFUSED:
		text = typed.ForCaller
	case execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FAILED_ATTEMPTS:
		text = "too many attempts to authenticate from this address failed: wait before the next"
		details = quota{setting: "failed_attempts", retry: typed.RetryAfter}.describe(0, metadata)
	case execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_CONNECTIONS:
		text = typed.ForCaller
		details = quota{setting: typed.Setting, unit: "connections", retry: typed.RetryAfter}.describe(int64(typed.Limit), metadata)
	}
	return failure(t.code, t.reason, metadata, text, details...)
}
