// Package files has the calls about files of the JSON-RPC protocol, as calls of the
// generated gRPC client.
package files

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// closeTimeout bounds closing the files that a client has left open.
const closeTimeout = 30 * time.Second

// Service serves the file calls of one connection.
type Service struct {
	client     execwirev1.FileSystemServiceClient
	connection call.Connection
	answers    *call.Limiter
	order      call.Paths
	handles    handles
	watches    *call.Watches

	sandboxes sandboxCache // of the receiving goroutine

	// Set by Open.
	sessionID  string
	noSymlinks bool // the server can refuse symbolic links
}

// New returns the service of a connection with its watches. shared bounds the large answers of all
// connections.
func New(client execwirev1.FileSystemServiceClient, connection call.Connection, watches *call.Watches, shared call.Shared) *Service {
	return &Service{client: client, connection: connection, answers: call.NewLimiter(shared), watches: watches, sandboxes: make(sandboxCache)}
}

// Open sets the session of the connection and the features of the server. It precedes
// the first Enqueue.
func (s *Service) Open(sessionID string, features []execwirev1.Feature) {
	s.sessionID = sessionID
	s.noSymlinks = slices.Contains(features, execwirev1.Feature_FEATURE_NO_SYMLINKS)
}

// Close closes the files that the client has left open, after the last call. If that
// fails, they are closed with the session.
func (s *Service) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), closeTimeout, errCloseTimeout)
	defer cancel()
	for _, handle := range s.handles.takeAll() {
		_, err := s.client.CloseFile(ctx, &execwirev1.CloseFileRequest{SessionId: s.sessionID, HandleId: handle.serverID})
		if ctx.Err() != nil || err != nil && errorinfo.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND {
			return
		}
	}
}

var errCloseTimeout = errors.New("the server did not close the files in time")

// Call is a call about files, with decoded parameters.
type Call interface {
	run(ctx context.Context, s *Service) (result any, failed *jsonrpc.Error)
}

// pathCall is a call that names paths.
type pathCall interface {
	// touches returns the paths, and whether the call changes them.
	touches() (paths []param.Path, changes bool)
}

// confinedCall is a call that may have a sandbox.
type confinedCall interface {
	pathCall
	confinement() *confined
}

// handleCall is a call that names a handle.
type handleCall interface {
	// usesHandle returns the handle, and whether the call is ordered with all others
	// on it.
	usesHandle() (id string, changes bool)
}

// linkCall is a call that may refuse symbolic links.
type linkCall interface{ refusesLinks() bool }

// Check parses the sandbox of a call and clears it: it aliases the message. It is called
// by the receiving goroutine.
func (s *Service) Check(c Call) *jsonrpc.Error {
	confined, ok := c.(confinedCall)
	if !ok {
		return nil
	}
	paths, _ := confined.touches()
	uri := len(paths) > 0 && paths[0].URI
	return confined.confinement().read(uri, s.sandboxes)
}

// Enqueue orders a call among the others. Calls are in the order in which requests
// arrive.
func (s *Service) Enqueue(turn *call.Turn, c Call) {
	if named, ok := c.(handleCall); ok {
		id, changes := named.usesHandle()
		s.handles.order.Enqueue(turn, []string{id}, changes)
	}
	if named, ok := c.(pathCall); ok {
		paths, changes := named.touches()
		native := make([]string, len(paths))
		for i, p := range paths {
			native[i] = p.Native
		}
		s.order.Enqueue(turn, native, changes)
	}
}

// Run executes a call in its turn. See [call] for the kinds of results.
func (s *Service) Run(ctx context.Context, c Call) (any, *jsonrpc.Error) {
	if confined, ok := c.(confinedCall); ok {
		if failed := s.checkCwd(ctx, confined.confinement().cwd); failed != nil {
			return nil, failed
		}
	}
	if link, ok := c.(linkCall); ok && link.refusesLinks() && !s.noSymlinks {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "this server cannot refuse symbolic links: leave followSymlinks out, or use fs/canonicalize first")
	}
	return c.run(ctx, s)
}

// checkCwd checks that the cwd of a sandbox exists: older versions ran the call in it.
func (s *Service) checkCwd(ctx context.Context, cwd string) *jsonrpc.Error {
	if cwd == "" {
		return nil
	}
	_, err := s.client.GetMetadata(ctx, &execwirev1.GetMetadataRequest{Path: cwd})
	if errorinfo.Of(err).GetMetadata()["errno"] == "ENOENT" {
		return rpcerror.WithCode(err, jsonrpc.CodeInternal, rpcerror.OSText("ENOENT"))
	}
	return nil // other errors do not concern this call
}
