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

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/server/auditcall"
)

// need is what a call requires of its caller.
type need struct {
	permission auth.Permissions // zero: any principal
	public     bool             // public: callers are not authenticated
	local      bool             // hidden from callers over TLS or the relay
}

// needs has every method by its full name. A method that is missing is not served; a
// test proves it complete.
var needs = map[string]need{
	execwirev1.ProcessService_GetProcess_FullMethodName:        {permission: auth.View},
	execwirev1.ProcessService_ListProcesses_FullMethodName:     {permission: auth.View},
	execwirev1.ProcessService_WatchProcess_FullMethodName:      {permission: auth.View},
	execwirev1.ProcessService_ReadOutput_FullMethodName:        {permission: auth.View},
	execwirev1.ProcessService_SnapshotOutput_FullMethodName:    {permission: auth.View},
	execwirev1.ProcessService_GetScreen_FullMethodName:         {permission: auth.View},
	execwirev1.ProcessService_WatchScreen_FullMethodName:       {permission: auth.View},
	execwirev1.ProcessService_WaitProcess_FullMethodName:       {permission: auth.View},
	execwirev1.ProcessService_StartProcess_FullMethodName:      {permission: auth.Start},
	execwirev1.ProcessService_RunProcess_FullMethodName:        {permission: auth.Start},
	execwirev1.ProcessService_OwnProcess_FullMethodName:        {permission: auth.Start},
	execwirev1.ProcessService_AcknowledgeOutput_FullMethodName: {permission: auth.Start},
	execwirev1.ProcessService_DetachProcess_FullMethodName:     {permission: auth.Start},
	execwirev1.ProcessService_WriteStdin_FullMethodName:        {permission: auth.Control},
	execwirev1.ProcessService_CloseStdin_FullMethodName:        {permission: auth.Control},
	execwirev1.ProcessService_ResizeTerminal_FullMethodName:    {permission: auth.Control},
	execwirev1.ProcessService_SignalProcess_FullMethodName:     {permission: auth.Control},
	execwirev1.ProcessService_TerminateProcess_FullMethodName:  {permission: auth.Control},
	execwirev1.SessionService_AttachSession_FullMethodName:     {permission: auth.Session},
	execwirev1.SessionService_ListSessions_FullMethodName:      {permission: auth.Session},
	execwirev1.SessionService_CloseSession_FullMethodName:      {permission: auth.Session},
	execwirev1.SessionService_GrantSession_FullMethodName:      {permission: auth.Session},

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
	execwirev1.FileSystemService_SignFileURL_FullMethodName:      {}, // by the method of the URL: see needOf
	execwirev1.FileSystemService_CreateDirectory_FullMethodName:  {permission: auth.WriteFiles},
	execwirev1.FileSystemService_SetMetadata_FullMethodName:      {permission: auth.WriteFiles},
	execwirev1.FileSystemService_RemovePath_FullMethodName:       {permission: auth.WriteFiles},
	execwirev1.FileSystemService_RenamePath_FullMethodName:       {permission: auth.WriteFiles},
	execwirev1.FileSystemService_CreateSymlink_FullMethodName:    {permission: auth.WriteFiles},
	execwirev1.FileSystemService_CopyPath_FullMethodName:         {permission: auth.WriteFiles},
	execwirev1.FileSystemService_OpenFile_FullMethodName:         {permission: auth.ReadFiles},
	execwirev1.FileSystemService_ReadBlock_FullMethodName:        {permission: auth.ReadFiles},
	execwirev1.FileSystemService_CloseFile_FullMethodName:        {permission: auth.ReadFiles},
	execwirev1.FileSystemService_WriteBlock_FullMethodName:       {permission: auth.WriteFiles},

	execwirev1.PortService_ListPorts_FullMethodName:   {permission: auth.View},
	execwirev1.PortService_WatchPorts_FullMethodName:  {permission: auth.View},
	execwirev1.PortService_ConnectPort_FullMethodName: {permission: auth.Ports},
	execwirev1.PortService_ListenPort_FullMethodName:  {permission: auth.Ports},

	execwirev1.HttpService_Fetch_FullMethodName: {permission: auth.HTTP},

	execwirev1.EnvironmentService_GetEnvironment_FullMethodName: {permission: auth.Environment},

	execwirev1.AdminService_Reload_FullMethodName:      {permission: auth.Admin},
	execwirev1.AdminService_Upgrade_FullMethodName:     {permission: auth.Admin},
	execwirev1.AdminService_GetUpgrade_FullMethodName:  {permission: auth.Admin},
	execwirev1.AdminService_GetStatus_FullMethodName:   {permission: auth.Admin},
	execwirev1.AdminService_TakeProfile_FullMethodName: {permission: auth.Admin},
	execwirev1.AdminService_ReadAudit_FullMethodName:   {permission: auth.Admin},

	healthpb.Health_Check_FullMethodName: {public: true},
	healthpb.Health_List_FullMethodName:  {public: true},
	healthpb.Health_Watch_FullMethodName: {public: true},

	reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      {local: true},
	reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: {local: true},
}

// IsPublic reports whether a method, by its full name, is served without
// authentication.
func IsPublic(method string) bool { return needs[method].public }

// authorize adds the principal of a call to its context, if it may make the call.
func (i *interceptors) authorize(ctx context.Context) (context.Context, error) {
	method, _ := grpc.Method(ctx)
	need, known := needs[method]
	switch {
	case need.public:
		return ctx, nil
	case need.local && isRemote(ctx):
		return nil, notImplemented(method)
	}
	caller, err := i.cfg.Authenticate(ctx)
	if log, ok := ctx.Value(callLogKey{}).(*callLog); ok {
		log.caller, log.refusal = caller, err
	}
	if status := mayCall(caller, err, method, need, known); status != nil {
		who := auditcall.Who{Principal: caller.Principal.Name, Via: caller.Via.Name}
		i.cfg.Audit.Denied(ctx, who, method, nil, status, DenialRule(err, method))
		return nil, status
	}
	ctx = context.WithValue(ctx, callerKey{}, caller)
	return auth.WithPrincipal(ctx, caller.Principal), nil
}

// DenialRule returns by which rule a call was denied, for the audit log: the kind of the
// error of authentication, or the permission that the method needs.
func DenialRule(err error, method string) string {
	if typed, ok := errors.AsType[*auth.Error](err); ok {
		return typed.Kind.String()
	}
	return "permission " + needs[method].permission.String()
}

// callerKey is the context key of the authenticated caller.
type callerKey struct{}

// needOf returns the permissions that a request needs in addition to those of its
// method.
func needOf(req any) auth.Permissions {
	switch m := req.(type) {
	case *execwirev1.OpenFileRequest:
		if m.GetMode() == execwirev1.OpenMode_OPEN_MODE_REPLACE {
			return auth.WriteFiles
		}
	case *execwirev1.SignFileURLRequest:
		switch m.GetMethod() {
		case execwirev1.FileURLMethod_FILE_URL_METHOD_GET:
			return auth.ReadFiles
		case execwirev1.FileURLMethod_FILE_URL_METHOD_PUT:
			return auth.WriteFiles
		}
	}
	return 0
}

// authorizeRequest checks the permissions that depend on the request.
func authorizeRequest(ctx context.Context, req any) error {
	need := need{permission: needOf(req)}
	if need.permission == 0 {
		return nil
	}
	caller, _ := ctx.Value(callerKey{}).(auth.Caller)
	return mayCall(caller, nil, "", need, true)
}

// MayCall returns nil if the caller may call a method, by its full name, with a
// request, which is nil for a stream, and otherwise the status of the error. It is for
// programs that make calls to another server for their own callers, and for refusing a
// call before its request is received; err is the error of authentication, or nil.
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
		return fromAuth(errNoPrincipal)
	case !known:
		return notImplemented(method)
	case !caller.May.Has(need.permission):
		name := need.permission.String()
		return translation{codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_CALL_NOT_ALLOWED}.failure(
			caller.Principal.String()+" may not do this: the table of principals does not give it the permission \""+name+"\"").set("permission", name).status()
	}
	return nil
}

// errNoPrincipal is the error for an authenticator that returns no principal and no
// error.
var errNoPrincipal = &auth.Error{Kind: auth.KindNoPrincipal, Subject: "caller", Err: errors.New("authentication returned no principal")}

// isRemote reports whether a call was made over TLS or the relay.
func isRemote(ctx context.Context) bool {
	p, ok := peer.FromContext(ctx)
	return ok && p.AuthInfo != nil && (p.AuthInfo.AuthType() == "tls" || p.AuthInfo.AuthType() == "relay")
}

// unauthenticated is the message for every failed authentication. The log says which
// credential was invalid; the caller must not learn it.
const unauthenticated = "the caller is not known here: show a token or a certificate that the server's table of principals has"

// unauthenticatedError is the translation of every kind that authErrors does not have.
var unauthenticatedError = translation{codes.Unauthenticated, execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED}

// authErrors translates the kinds of package auth that callers may tell apart.
var authErrors = map[auth.Kind]translation{
	auth.KindOnBehalfOfRefused:  {codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_ON_BEHALF_OF_REFUSED},
	auth.KindPeerRefused:        {codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_PEER_REFUSED},
	auth.KindTooManyAttempts:    {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FAILED_ATTEMPTS},
	auth.KindTooManyConnections: {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_CONNECTIONS},
}

// fromAuth translates an authentication error.
func fromAuth(err error) error {
	typed, ok := errors.AsType[*auth.Error](err)
	if !ok {
		return unauthenticatedError.failure(unauthenticated).status()
	}
	switch t := authErrors[typed.Kind]; t.reason {
	case execwirev1.ErrorReason_ERROR_REASON_ON_BEHALF_OF_REFUSED:
		return t.failure("the caller may not act on behalf of whom it named").status()
	case execwirev1.ErrorReason_ERROR_REASON_PEER_REFUSED:
		return t.failure(typed.ForCaller).status()
	case execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FAILED_ATTEMPTS:
		return t.failure("too many attempts to authenticate from this address failed: wait before the next").
			limit(quota{setting: "failed_attempts", retry: typed.RetryAfter}, 0).status()
	case execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_CONNECTIONS:
		return t.failure(typed.ForCaller).limit(quota{setting: typed.Setting, unit: "connections", retry: typed.RetryAfter}, int64(typed.Limit)).status()
	}
	return unauthenticatedError.failure(unauthenticated).status()
}
