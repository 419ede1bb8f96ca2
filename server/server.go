// Package server is the gRPC face of the domain: it validates requests, finds
// what they are about, translates, and maps errors. It holds no process state.
package server

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/httpclient"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/server/filehelper"
)

// Limits are the bounds that the server itself enforces and those that it
// reports to clients. Package config has the defaults; zero means zero.
type Limits struct {
	// RetainedOutput, RetainedEvents, Window, Snapshot and Readers bound the
	// event log of each process; see eventlog.Limits.
	RetainedOutput, RetainedEvents, Window, Snapshot, Readers int
	// StdinWrite and StdinQueue are in bytes; see process.Config.
	StdinWrite, StdinQueue int
	// Message is the largest message taken, in bytes.
	Message int
	// ReadFile is the largest file that ReadFile returns, in bytes.
	ReadFile int
	// UploadRetention is how long an upload is kept that nobody goes on with, and
	// AbandonedUploads how many of them each principal may have: the oldest gives way.
	// Uploads is how many a principal may send at once.
	UploadRetention           time.Duration
	Uploads, AbandonedUploads int
	// DefaultGrace, MaxGrace, ClosedRetention and UnseenRetention are reported only;
	// the session registry enforces them.
	DefaultGrace, MaxGrace, ClosedRetention, UnseenRetention time.Duration
	// ShutdownGrace is reported only.
	ShutdownGrace time.Duration
	// Processes, Sessions, SessionsTotal, RetainedTotal, Spool and UnseenProcesses
	// are reported only; the session registry enforces them.
	Processes, Sessions, SessionsTotal, RetainedTotal, Spool, UnseenProcesses int
	// Streams and HeaderList are reported only; the transport enforces them.
	Streams, HeaderList int
	// HTTPRequests and HTTPHead are reported only; package httpclient enforces them.
	HTTPRequests, HTTPHead int
	// FileHandles is how many handles of open files a session may have; 0 is no
	// bound. FileHandleIdle is how long an unused one of a default session stays
	// open.
	FileHandles    int
	FileHandleIdle time.Duration
	// Watches, AwaitedPaths, WatchedDirectories and WatchPending bound what callers
	// watch; see fsops.WatcherOptions.
	Watches, AwaitedPaths, WatchedDirectories, WatchPending int
	// FileHelpers is how many helpers for confined calls about files a principal may
	// have, and FileHelpersTotal how many there may be; FileHelperIdle is how long one
	// stays that nobody uses.
	FileHelpers, FileHelpersTotal int
	FileHelperIdle                time.Duration
	// MaxWait cuts the waits of ReadOutput and WaitProcess.
	MaxWait time.Duration
}

// Config is what a server is made of.
type Config struct {
	// Sessions is the domain. Required; the server does not close it.
	Sessions *session.Registry
	// HTTP makes requests for callers. Nil has HttpService switched off.
	HTTP *httpclient.Client
	// Limits bounds what clients may do.
	Limits Limits
	// Authenticate returns who makes a call, from its context, and what that one
	// may do; or an *auth.Error. Required. It is called concurrently.
	Authenticate func(ctx context.Context) (auth.Caller, error)
	// Logger gets one line per failed call, and per successful one at debug
	// level. Nil discards.
	Logger *slog.Logger
	// Version is reported to clients.
	Version string
	// KillMethod is the strongest means of killing that works here, to be
	// reported to clients.
	KillMethod process.Method
	// Environ is the environment that environment policies take from, in the
	// form of os.Environ.
	Environ []string
	// Guarded is reported to clients: whether a guardian ends all processes
	// should the server be killed.
	Guarded bool
	// LoopbackAnyUser is reported to clients: whether every user of this host is
	// accepted on loopback without a credential.
	LoopbackAnyUser bool
	// Sandboxes are what confines processes and calls about files. Nil refuses every
	// policy that would have to be enforced. The server does not close it.
	Sandboxes *sandbox.Sandboxes
	// RequiredSandbox confines every process and every call about files, beside what
	// the request asks for. It has passed CheckRequired. Nil requires nothing.
	RequiredSandbox *execwirev1.SandboxPolicy
	// KeepWatcher keeps an inotify instance from the beginning, of which a user has few,
	// and some in reserve for helpers if there are Sandboxes.
	KeepWatcher bool
	// NoDirect refuses to start direct commands, and NoPrepared prepared ones.
	NoDirect, NoPrepared bool
	// OnContent is called when a call has moved much content of files: when memory
	// may have become free. It must neither block nor use the server. Nil calls
	// nothing.
	OnContent func()
}

// Server implements the services of execwire.v1. Every method may be called
// concurrently.
type Server struct {
	cfg       Config
	instance  string // which run of the server this is
	uploads   *fsops.Uploads
	watcher   *fsops.Watcher
	watching  context.Context // until EndWatches
	endWatch  context.CancelCauseFunc
	receivers sync.WaitGroup // goroutines that outlive their handler by a moment
	helpers   *filehelper.Pool
	keptFiles atomic.Uint64 // the last id of a file that a helper has open
}

// New returns a server that is ready to be registered.
func New(cfg Config) *Server {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	uploads := fsops.NewUploads(cfg.Limits.UploadRetention, cfg.Limits.Uploads, cfg.Limits.AbandonedUploads)
	watching, endWatch := context.WithCancelCause(context.Background())
	helpers := filehelper.NewPool(filehelper.Options{
		PerPrincipal: cfg.Limits.FileHelpers, Total: cfg.Limits.FileHelpersTotal, Idle: cfg.Limits.FileHelperIdle, Complete: cfg.Limits.AbandonedUploads,
		MessageBytes: cfg.Limits.helperMessage(), Logger: cfg.Logger,
	})
	s := &Server{cfg: cfg, instance: uuid.NewString(), uploads: uploads, helpers: helpers, watching: watching, endWatch: endWatch, watcher: fsops.NewWatcher(fsops.WatcherOptions{
		Watches: cfg.Limits.Watches, AwaitedPaths: cfg.Limits.AwaitedPaths,
		Directories: cfg.Limits.WatchedDirectories, PendingBytes: cfg.Limits.WatchPending,
	})}
	if cfg.KeepWatcher {
		reserve := 0
		if cfg.Sandboxes != nil {
			reserve = min(instanceReserve(), cfg.Limits.FileHelpersTotal)
		}
		s.watcher.Keep(reserve)
	}
	return s
}

// instanceReserve is how many inotify instances are kept for helpers: those of so many
// policies and sessions watch at once while other programs of the user have all instances.
// It is 2 to 8, and between them a 64th of what a user may have, so that many servers of
// one user leave instances to others: by default a user may have 128.
func instanceReserve() int {
	most, _ := os.ReadFile("/proc/sys/fs/inotify/max_user_instances") // unknown is few
	n, _ := strconv.Atoi(strings.TrimSpace(string(most)))
	return max(2, min(n/64, 8))
}

// Register adds the services to a gRPC server or an in-process channel.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	execwirev1.RegisterProcessServiceServer(r, &processService{server: s})
	execwirev1.RegisterSessionServiceServer(r, &sessionService{server: s})
	execwirev1.RegisterFileSystemServiceServer(r, &confinedFiles{&fileSystemService{server: s}})
	execwirev1.RegisterHttpServiceServer(r, &httpService{server: s})
	execwirev1.RegisterEnvironmentServiceServer(r, &environmentService{server: s})
}

// EndWatches ends the calls that tell what happens to files, and those that come:
// they would go on for as long as their clients want.
func (s *Server) EndWatches() { s.endWatch(drainingError()) }

// Close waits for what handlers left behind, and drops unfinished uploads. Call it
// after the gRPC server and every in-process channel have stopped.
func (s *Server) Close() {
	s.EndWatches()
	s.helpers.Close()
	s.receivers.Wait()
	s.uploads.Close()
	s.watcher.Close()
}
