// Package server implements the gRPC services over the domain packages: it authorizes
// and validates requests, translates them, and maps errors. It holds no process
// state.
package server

import (
	"cmp"
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
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/httpclient"
	"github.com/execwire/execwire/internal/ports"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/recorder"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/internal/tracing"
	"github.com/execwire/execwire/server/auditcall"
	"github.com/execwire/execwire/server/fileworker"
	"github.com/execwire/execwire/server/traffic"
)

// Limits are limits of clients. Package config has the defaults; zero means zero.
type Limits struct {
	// ServerLimits is what clients are told. The server enforces those of messages,
	// files, watches and waits, and passes those of output to the event log; see
	// eventlog.Limits. The others are enforced by package session, process or
	// httpclient, or by the transport. A window of 0 is the retained output.
	*execwirev1.ServerLimits
	// AbandonedUploads is how many interrupted uploads each principal may have: the
	// oldest is evicted.
	AbandonedUploads int
	// NoDirect rejects direct commands, and NoPrepared prepared ones.
	NoDirect, NoPrepared bool
	// FileURLMaxAge is the longest time for which a URL of a file is signed.
	FileURLMaxAge time.Duration
	// FileWorkers is how many workers for confined file calls a principal may have,
	// FileWorkersTotal how many all principals together may have, and FileWorkerIdle
	// how long an unused one stays.
	FileWorkers, FileWorkersTotal int
	FileWorkerIdle                time.Duration
}

// Config is the configuration of a server.
type Config struct {
	// Sessions are the sessions and processes. Required; the server does not close
	// it.
	Sessions *session.Registry
	// HTTP makes requests for callers. Nil disables HttpService.
	HTTP *httpclient.Client
	// Ports connects to ports and listens on them for callers. Nil refuses both.
	Ports *ports.Network
	// Limits are the limits of clients.
	Limits Limits
	// Authenticate returns the caller of a call and its permissions, or an
	// *auth.Error. Required. It is called concurrently.
	Authenticate func(ctx context.Context) (auth.Caller, error)
	// Audit records calls in the audit log. Nil records nothing.
	Audit *auditcall.Auditor
	// Recorder records terminals of processes that callers with Record start. Nil records
	// nothing.
	Recorder *recorder.Recorder
	// Logger gets one line per failed call and per started process, and per successful
	// call at debug level. Nil discards.
	Logger *slog.Logger
	// Tracer records calls and the processes that they start. Nil records nothing.
	Tracer *tracing.Tracer
	// Version is reported to clients.
	Version string
	// Instance identifies this run of the server, which goes on when another program
	// replaces it. Empty is a new run.
	Instance string
	// KillMethod is the strongest available kill method, reported to clients.
	KillMethod process.Method
	// Environ is the environment that environment policies inherit from, in the form
	// of os.Environ.
	Environ []string
	// Guarded is reported to clients: a guardian ends all processes if the server is
	// killed.
	Guarded bool
	// LoopbackAnyUser is reported to clients: every user of this host is accepted on
	// loopback without a credential.
	LoopbackAnyUser bool
	// Sandboxes confine processes and file calls. Nil rejects every policy that needs
	// enforcement. The server does not close it.
	Sandboxes *sandbox.Sandboxes
	// RequiredSandbox confines every process and every file call, in addition to the
	// request's policy. It has passed CheckRequired. Nil requires nothing.
	RequiredSandbox *execwirev1.SandboxPolicy
	// KeepWatcher opens an inotify instance at once, because a user has few, and a
	// reserve for workers if there are Sandboxes.
	KeepWatcher bool
	// FileURLs sign URLs of files. Nil disables SignFileURL.
	FileURLs *auth.FileURLKeys
	// Traffic returns the counters for what the messages of a call carry. It is called
	// concurrently. Nil counts nothing.
	Traffic func(context.Context) *traffic.Bytes
	// OnContent is called when a call has transferred much file content, so that
	// memory may have become free. It must neither block nor use the server. Nil
	// calls nothing.
	OnContent func()
}

// Server implements the services of execwire.v1. Every method may be called
// concurrently.
type Server struct {
	interceptors
	cfg            Config // Limits as it was at the start
	current        atomic.Pointer[Limits]
	instance       string    // identifies this run of the server
	began          time.Time // when this run began; zero if it goes on with that of another program
	uploads        *fsops.Uploads
	watcher        *fsops.Watcher
	ports          *ports.Finder
	watchContext   context.Context // ends with EndWatches
	cancelWatches  context.CancelCauseFunc
	receivers      sync.WaitGroup // goroutines that end just after their handler
	traced         sync.WaitGroup // goroutines that last as long as a traced process, or watchContext
	workers        *fileworker.Pool
	lastWorkerFile atomic.Uint64 // the last id of a file in a worker

	// Resources of sessions.
	handles    *session.ResourceKind[*fsops.Handles]
	workerSets *session.ResourceKind[*fileworker.Set]
	listeners  *session.ResourceKind[*ports.Listeners]
}

// New returns a server, ready to be registered.
func New(cfg Config) *Server {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Traffic == nil {
		uncounted := new(traffic.Bytes)
		cfg.Traffic = func(context.Context) *traffic.Bytes { return uncounted }
	}
	cfg.Limits = cfg.Limits.withDefaults()
	limits := &cfg.Limits
	cfg.Ports = cmp.Or(cfg.Ports, ports.NewNetwork(ports.Options{}))
	s := &Server{
		cfg: cfg, instance: cmp.Or(cfg.Instance, uuid.NewString()), ports: ports.NewFinder(),
		uploads: fsops.NewUploads(limits.GetUploadRetention().AsDuration(), int(limits.GetUploadsPerPrincipal()), limits.AbandonedUploads),
		watcher: fsops.NewWatcher(fsops.WatcherOptions{
			Watches: int(limits.GetWatchesPerPrincipal()), AwaitedPaths: int(limits.GetAwaitedPathsPerPrincipal()),
			Directories: int(limits.GetWatchedDirectoriesPerWatch()), PendingBytes: int(limits.GetWatchPendingBytes()),
		}),
		workers: fileworker.NewPool(fileworker.Options{
			PerPrincipal: limits.FileWorkers, Total: limits.FileWorkersTotal, Idle: limits.FileWorkerIdle, Complete: limits.AbandonedUploads,
			MessageBytes: limits.workerMessageBytes(), Logger: cfg.Logger,
		}),
	}
	s.interceptors = interceptors{cfg: &s.cfg, current: &s.current, instance: s.instance}
	if cfg.Instance == "" {
		s.began = time.Now()
	}
	s.current.Store(limits)
	s.watchContext, s.cancelWatches = context.WithCancelCause(context.Background())
	s.handles = session.NewResourceKind(s.newHandles)
	s.workerSets = session.NewResourceKind(func(of *session.Session, emptied func()) *fileworker.Set {
		return s.workers.NewSet(of.Principal(), emptied)
	})
	s.listeners = session.NewResourceKind(func(of *session.Session, emptied func()) *ports.Listeners {
		return cfg.Ports.Listeners(of.Principal(), emptied)
	})
	if cfg.KeepWatcher {
		reserve := 0
		if cfg.Sandboxes != nil {
			reserve = min(inotifyReserve(), cfg.Limits.FileWorkersTotal)
		}
		s.watcher.Keep(reserve)
	}
	return s
}

// withDefaults returns limits with a window and a ServerLimits of their own.
func (l Limits) withDefaults() Limits {
	l.ServerLimits = proto.CloneOf(cmp.Or(l.ServerLimits, &execwirev1.ServerLimits{}))
	if window, retained := l.GetWindowBytes(), l.GetRetainedOutputBytes(); window == 0 || window > retained {
		l.WindowBytes = retained
	}
	return l
}

// SetLimits changes the limits of later calls. Those of uploads, watches, handles and
// workers stay as they were.
func (s *Server) SetLimits(limits Limits) {
	limits = limits.withDefaults()
	s.current.Store(&limits)
}

func (s *Server) limits() *Limits { return s.current.Load() }

// inotifyReserve is how many inotify instances are reserved for workers, for watches
// of so many policies and sessions while other programs of the user have all other
// instances. It is a 64th of the user's limit, which is 128 by default, but 2 to 8,
// so that several servers of one user leave instances to others.
func inotifyReserve() int {
	most, _ := os.ReadFile("/proc/sys/fs/inotify/max_user_instances") // an unknown limit counts as a low one
	n, _ := strconv.Atoi(strings.TrimSpace(string(most)))
	return max(2, min(n/64, 8))
}

// Register registers the services with a gRPC server or an in-process channel.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	execwirev1.RegisterProcessServiceServer(r, &processService{server: s})
	execwirev1.RegisterSessionServiceServer(r, &sessionService{server: s})
	execwirev1.RegisterFileSystemServiceServer(r, &confinedFiles{&fileSystemService{server: s}})
	execwirev1.RegisterPortServiceServer(r, &portService{server: s})
	execwirev1.RegisterHttpServiceServer(r, &httpService{server: s})
	execwirev1.RegisterEnvironmentServiceServer(r, &environmentService{server: s})
}

// Instance identifies this run of the server.
func (s *Server) Instance() string { return s.instance }

// WaitReceivers waits for goroutines that end just after their handler.
func (s *Server) WaitReceivers() { s.receivers.Wait() }

// EndWatches ends current and later watches, and connections and listeners of
// PortService, which would otherwise run for as long as their clients want.
func (s *Server) EndWatches() { s.cancelWatches(drainingError()) }

// untilStopped returns a context that ends with the call, or with EndWatches.
func (s *Server) untilStopped(call context.Context) (ctx context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(call)
	stop := context.AfterFunc(s.watchContext, func() { cancel(context.Cause(s.watchContext)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// drainingError is the error of calls that EndWatches ends.
func drainingError() error {
	return translation{codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_DRAINING}.failure("the server stops: call again when it is back").
		retry(retryWhileDraining).status()
}

// Uploads returns the store of interrupted uploads, for an upgrade.
func (s *Server) Uploads() *fsops.Uploads { return s.uploads }

// Close waits for goroutines of handlers, and drops unfinished uploads. Call it after
// the gRPC server and every in-process channel have stopped.
func (s *Server) Close() {
	s.EndWatches()
	s.workers.Close()
	s.receivers.Wait()
	s.traced.Wait()
	s.uploads.Close()
	s.watcher.Close()
	s.ports.Close()
}
