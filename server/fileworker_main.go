package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	authmw "github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/auth"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/server/fileworker"
)

// fileWorkerVerb is the argument that makes this program a worker for confined file
// calls. The next argument has its limits.
const fileWorkerVerb = "execwire-file-worker"

const (
	// workerProcessors is GOMAXPROCS of a worker. With more, each call wakes a thread
	// that finds nothing to do.
	workerProcessors = 1
	// workerGCPercent is the GOGC of a worker, and workerMemory its soft memory limit
	// in bytes.
	workerGCPercent = 50
	workerMemory    = 64 << 20
	// workerMessageOverhead is the size of a message without content.
	workerMessageOverhead = 1 << 20
)

// workerMessageBytes is the largest message to or from a worker.
func (l Limits) workerMessageBytes() int {
	return int(max(2*l.GetMessageBytes(), l.GetReadFileBytes(), 4<<20)) + workerMessageOverhead
}

// workerArguments returns the command line of workers.
func (l Limits) workerArguments() []string {
	l.ServerLimits = proto.CloneOf(l.ServerLimits)
	l.FileHandlesPerSession, l.FileHandleIdleTime = 0, nil // the server enforces these
	text, err := json.Marshal(l)
	if err != nil {
		text = nil // no worker accepts it
	}
	return []string{"execwire-file-worker", fileWorkerVerb, string(text)}
}

// FileWorkerMain serves file calls to the server that has started this program, if
// the command line says so, until the server disconnects, and exits. Otherwise it
// returns. The main function of a program with a server with sandboxes must call it
// first.
func FileWorkerMain() {
	if len(os.Args) != 3 || os.Args[1] != fileWorkerVerb {
		return
	}
	var limits Limits
	if err := json.Unmarshal([]byte(os.Args[2]), &limits); err != nil {
		fmt.Fprintln(os.Stderr, "the limits are malformed:", err)
		unix.Exit(2)
	}
	if err := serveAsWorker(limits); err != nil {
		fmt.Fprintln(os.Stderr, err)
		unix.Exit(1)
	}
	unix.Exit(0) // with the race detector os.Exit takes a second
}

func serveAsWorker(limits Limits) error {
	runtime.GOMAXPROCS(workerProcessors)
	debug.SetGCPercent(workerGCPercent)
	debug.SetMemoryLimit(workerMemory)
	descriptors, rpc, err := sandbox.WorkerConns()
	if err != nil {
		return fmt.Errorf("there is no connection to the server: %w", err)
	}
	sessions := session.NewRegistry(process.NewSupervisor(process.Config{}), session.Config{})
	s := New(Config{
		Sessions:     sessions,
		Limits:       limits,
		Authenticate: func(context.Context) (auth.Caller, error) { return auth.Unrestricted(auth.InProcess), nil },
		Logger:       slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	fileworker.Serve(descriptors, rpc, limits.workerMessageBytes(), s.watcher.Adopt, s.registerFiles,
		s.workerInterceptor(), grpc.ChainStreamInterceptor(s.StreamInterceptors()...))
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, context.DeadlineExceeded)
	defer cancel()
	_ = sessions.Close(ctx) // it has files open, but no process
	s.Close()
	return nil
}

// workerInterceptor returns the interceptor of unary calls in a worker. The server has
// validated the calls, and logs them.
func (i *interceptors) workerInterceptor() grpc.UnaryServerInterceptor {
	recovered := recovery.UnaryServerInterceptor(recovery.WithRecoveryHandlerContext(i.recovered))
	authorized := authmw.UnaryServerInterceptor(i.authorize)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return i.translateUnary(ctx, req, info, func(ctx context.Context, req any) (any, error) {
			return recovered(ctx, req, info, func(ctx context.Context, req any) (any, error) {
				return authorized(ctx, req, info, handler)
			})
		})
	}
}

// registerFiles registers the file service, for calls that are confined with this
// program.
func (s *Server) registerFiles(r grpc.ServiceRegistrar) {
	execwirev1.RegisterFileSystemServiceServer(r, &fileSystemService{server: s})
}
