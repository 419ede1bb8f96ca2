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

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/server/filehelper"
)

// fileHelperVerb is the argument that makes this program a helper for calls about
// files. The next one are its limits.
const fileHelperVerb = "execwire-file-helper"

const (
	// helperProcessors is how much of the machine the Go code of one helper may use at
	// once. With more, each call wakes a thread that finds nothing to do.
	helperProcessors = 1
	// helperGarbage is the share of garbage that a helper lets come about, in percent,
	// and helperMemory how many bytes it tries to stay below.
	helperGarbage = 50
	helperMemory  = 64 << 20
	// helperMessageRoom is what a message has beside content.
	helperMessageRoom = 1 << 20
)

// helperMessage is the largest message that goes to a helper or comes from it.
func (l Limits) helperMessage() int { return max(2*l.Message, l.ReadFile, 4<<20) + helperMessageRoom }

// helperArguments are those of helpers.
func (s *Server) helperArguments() []string {
	limits := s.cfg.Limits
	limits.FileHandles, limits.FileHandleIdle = 0, 0 // the server counts
	text, err := json.Marshal(limits)
	if err != nil {
		text = nil // which no helper takes
	}
	return []string{"execwire-file-helper", fileHelperVerb, string(text)}
}

// FileHelperMain serves calls about files to the server that has started this
// program, if the command line says so, until the server has no more, and ends the
// process. Otherwise it returns. A program that has a server with sandboxes calls it
// first of all.
func FileHelperMain() {
	if len(os.Args) != 3 || os.Args[1] != fileHelperVerb {
		return
	}
	var limits Limits
	if err := json.Unmarshal([]byte(os.Args[2]), &limits); err != nil {
		fmt.Fprintln(os.Stderr, "the limits are malformed:", err)
		unix.Exit(2)
	}
	if err := serveAsHelper(limits); err != nil {
		fmt.Fprintln(os.Stderr, err)
		unix.Exit(1)
	}
	unix.Exit(0) // with the race detector os.Exit waits for a second
}

func serveAsHelper(limits Limits) error {
	runtime.GOMAXPROCS(helperProcessors)
	debug.SetGCPercent(helperGarbage)
	debug.SetMemoryLimit(helperMemory)
	calls, streams, err := sandbox.HelperConns()
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
	served := filehelper.Serve(calls, streams, limits.helperMessage(), s.watcher.Adopt, s.registerFiles, s.helperInterceptors(), s.StreamInterceptors())
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, context.DeadlineExceeded)
	defer cancel()
	_ = sessions.Close(ctx) // which has files open, and no process
	s.Close()
	return served
}

// helperInterceptors are what calls of one message each way go through in a helper.
// The server that made them has checked what they ask for, and logs them.
func (s *Server) helperInterceptors() []grpc.UnaryServerInterceptor {
	return []grpc.UnaryServerInterceptor{
		recordUnary,
		s.translateUnary,
		recovery.UnaryServerInterceptor(recovery.WithRecoveryHandlerContext(s.recovered)),
		authmw.UnaryServerInterceptor(s.authorize),
	}
}

// registerFiles adds the service of files, for callers that are confined with this
// program.
func (s *Server) registerFiles(r grpc.ServiceRegistrar) {
	execwirev1.RegisterFileSystemServiceServer(r, &fileSystemService{server: s})
}
