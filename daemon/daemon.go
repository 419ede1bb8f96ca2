// Package daemon assembles a server from a configuration: supervisor, sessions,
// services and listeners. The command line runs it, and programs embed it:
// docs/embedding.md has an introduction.
//
// [Open] returns a client of the server that a URL names, in this program or
// elsewhere. [Run] runs a server with listeners, [RunExecutor] one that is reached
// through a relay, and [New] creates one without serving. In each case the main
// function must call [Main] first, or sandboxes do not work.
package daemon

import (
	"cmp"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/confinement"
	"github.com/execwire/execwire/internal/destination"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/httpclient"
	"github.com/execwire/execwire/internal/inproc"
	"github.com/execwire/execwire/internal/ports"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/recorder"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/secretfile"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/internal/syslimit"
	"github.com/execwire/execwire/internal/tracing"
	"github.com/execwire/execwire/relay/executor"
	"github.com/execwire/execwire/server"
	"github.com/execwire/execwire/server/admin"
	"github.com/execwire/execwire/server/auditcall"
)

// Options are the options of a daemon beside its configuration.
type Options struct {
	// Version is reported to clients. Empty is "devel".
	Version string
	// Logger is the daemon's log. Nil discards.
	Logger *slog.Logger
	// Environ is the environment that environment policies inherit from. Nil is the
	// environment of this program. If the configuration has a relay, the variables
	// with credentials for its registry are removed.
	Environ []string
	// AdoptOrphans makes the program a subreaper, without which no kill can be
	// verified. It is for programs that are only a server: children of the program
	// that call setsid, whatever started them, then count as descendants of
	// processes.
	AdoptOrphans bool
	// Guarded is reported to clients: a guardian ends all processes if this program
	// is killed.
	Guarded bool
	// RemoteCredentials are the credentials for the registry of the relay, if the
	// configuration has one; see [executor.FindCredentials]. Nil shows none.
	RemoteCredentials executor.Credentials
	// LoadConfig reads the configuration again for [Daemon.Reload]. It is called by one
	// goroutine at a time. Nil keeps the configuration.
	LoadConfig func() (Config, error)
	// OnListen is called with the URL of every listener when it begins to accept,
	// with the port that the kernel chose. Nil calls nothing.
	OnListen func(url string)
	// OnReady is called once, when all listeners accept. Nil calls nothing.
	OnReady func()
	// Inherited are listening sockets that the program was started with, for example by
	// systemd. A listener of the configuration with the address of one uses it. One
	// that no listener uses is an error. Serve closes them, unless it returns an error.
	Inherited []net.Listener
	// OnDrain is called when the daemon begins to drain while processes run, with
	// their number. Nil calls nothing.
	OnDrain func(processes int)
	// OnChange is called when memory may have become free: a process was started, has
	// closed or was removed, its output has moved to a file, a JSON-RPC client has connected or disconnected, or a
	// call has moved much file content. It must neither block nor use the daemon. Nil
	// calls nothing.
	OnChange func()
	// Upgrades lets another program replace this one while it serves. Nil refuses that.
	Upgrades *Upgrades
}

func (o Options) withDefaults(cfg config.Config) Options {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Version = cmp.Or(o.Version, "devel")
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	o.Environ = secretfile.WithoutToken(o.Environ)
	if cfg.HasRemote() {
		o.Environ = withoutSecrets(o.Environ)
	}
	return o
}

// Daemon is a server with its processes. All methods may be called
// concurrently.
type Daemon struct {
	opts          Options
	authenticator *authenticator
	confined      func(confinement.Peer) error // see [listen.Options]
	sessions      *session.Registry
	rules         *destination.Rules // of requests, and of connections and listeners of PortService
	sandboxes     *sandbox.Sandboxes
	server        *server.Server
	audit         *auditcall.Auditor // nil: there is no audit log
	recordings    *recorder.Recorder
	tracer        *tracing.Tracer // nil: none
	health        *health.Server
	metrics       *serverMetrics
	streams       *grpcStreams
	channel       *inproc.Channel
	clients       *clients
	reserve       ProcessReserve
	files         *eventlog.Files // for output of processes
	upgrades      *upgrades
	history       *processHistory // nil: none

	required *execwirev1.SandboxPolicy // nil requires none
	http     *httpclient.Client        // nil if disabled
	ports    *ports.Network

	reloading sync.Mutex // held by Reload, and while the listeners are opened
	listeners *listeners // guarded by reloading; nil before Serve
	mu        sync.Mutex
	cfg       config.Config // guarded by mu; changed by the holder of reloading

	// Each runs its part of closing once.
	processesEnded func() error
	servicesClosed func() error
}

// New creates a daemon that only [Daemon.Conn] reaches until it serves. It must be
// closed. New validates the configuration and reads the table of principals. If a
// sandbox is required, it probes the backends, which takes some tens of milliseconds;
// otherwise they are probed when needed. A probe executes this program again, so its
// main function must call [Main] first.
func New(cfg config.Config, opts Options) (*Daemon, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	given := cfg
	var threads sync.WaitGroup // made meanwhile, because that takes a millisecond
	defer threads.Wait()
	threads.Go(func() { syslimit.MakeThreads(serverThreads) })
	cfg.RetainedTotal = config.Bytes(retainedTotal(cfg, syslimit.System{}))
	opts = opts.withDefaults(cfg)
	counts := newServerMetrics(opts.Version)
	authenticator, err := newAuthenticator(cfg, opts.Logger, counts)
	if err != nil {
		return nil, err
	}
	auditor, err := openAudit(cfg, opts.Logger)
	if err != nil {
		return nil, err
	}
	authenticator.audit = auditor
	recordings, err := openRecorder(cfg, opts.Logger)
	if err != nil {
		closeAudit(auditor)
		return nil, err
	}
	sandboxes, required, err := openSandboxes(cfg, opts.Environ)
	if err != nil {
		closeAudit(auditor)
		return nil, err
	}
	rules := new(destination.Rules)
	portNetwork, err := newPortNetwork(cfg, rules, required, opts.Logger)
	if err != nil {
		closeAudit(auditor)
		sandboxes.Close()
		return nil, err
	}
	tracer, err := tracing.Open(tracing.Options{
		Endpoint: cfg.OTLPEndpoint, CA: cfg.OTLPCA, Headers: cfg.OTLPHeaders, Ratio: config.TraceRatioValue(cfg.TraceRatio),
		Service: "execwire", Version: opts.Version, Environ: os.Environ(), Logger: opts.Logger,
	})
	if err != nil {
		closeAudit(auditor)
		sandboxes.Close()
		return nil, err
	}
	cgroups, err := opts.Upgrades.openCgroups(cfg)
	if err != nil {
		closeAudit(auditor)
		tracer.Close()
		sandboxes.Close()
		return nil, err
	}
	reserve := reserveProcesses(cfg, syslimit.System{}, cgroups)
	files := outputFiles(cfg, opts.Logger)
	kept, err := openHistory(cfg, opts.Logger)
	if err != nil {
		closeAudit(auditor)
		tracer.Close()
		sandboxes.Close()
		return nil, err
	}
	supervisor, sessions, err := opts.Upgrades.openSessions(process.Config{
		Cgroups:         cgroups,
		Sandboxes:       sandboxes,
		Files:           files,
		UserProcesses:   reserve.UserProcesses,
		OOMScoreAdjust:  int(cfg.OOMScoreAdjust),
		AdoptOrphans:    opts.AdoptOrphans,
		StdinQueueBytes: int(cfg.StdinQueue),
		MaxWriteBytes:   int(cfg.StdinWrite),
		Logger:          opts.Logger,
		Observer:        counts,
	}, kept.hook(sessionConfig(cfg, opts, auditor)))
	if err != nil {
		closeAudit(auditor)
		kept.close()
		tracer.Close()
		sandboxes.Close()
		return nil, err
	}
	kept.recover(supervisor, sessions, cfg, opts.Upgrades.Upgraded())
	httpClient := newHTTPClient(cfg, rules, required, opts.Logger)
	srv := server.New(server.Config{
		Tracer:       tracer,
		Sessions:     sessions,
		HTTP:         httpClient,
		Ports:        portNetwork,
		Limits:       limits(cfg),
		Authenticate: authenticator.authenticate,
		Audit:        auditor,
		Recorder:     recordings,
		Logger:       opts.Logger,
		Version:      opts.Version,
		Instance:     opts.Upgrades.instance(),
		KillMethod:   supervisor.KillMethod(),
		Environ:      opts.Environ,
		Guarded:      opts.Guarded,
		KeepWatcher:  true,
		Sandboxes:    sandboxes,
		OnContent:    opts.OnChange,
		Traffic:      counts.trafficOf,

		FileURLs: authenticator.fileURLs,

		RequiredSandbox: required,
		LoopbackAnyUser: authenticator.users.AcceptsAny(),
	})
	streams := newGRPCStreams()
	channel := inproc.New(
		inproc.WithUnaryInterceptors(slices.Concat([]grpc.UnaryServerInterceptor{counts.countUnary}, srv.UnaryInterceptors())...),
		inproc.WithStreamInterceptors(slices.Concat([]grpc.StreamServerInterceptor{counts.countStream}, srv.StreamInterceptors(),
			[]grpc.StreamServerInterceptor{streams.intercept})...),
	)
	srv.Register(channel)
	healthServer := health.NewServer()
	healthpb.RegisterHealthServer(channel, healthServer)
	d := &Daemon{cfg: given, opts: opts, authenticator: authenticator, sessions: sessions, rules: rules, sandboxes: sandboxes, server: srv, audit: auditor, recordings: recordings, history: kept,
		health: healthServer, metrics: counts, streams: streams, channel: channel, tracer: tracer,
		confined: supervisor.CheckPeer, reserve: reserve, files: files, required: required, http: httpClient, ports: portNetwork,
		upgrades: newUpgrades(opts.Upgrades, opts.Version)}
	counts.begin(d)
	admin.Register(channel, adminConfig(d))
	recordings.Restore(opts.Upgrades.recordings(), recorded(sessions))
	d.processesEnded = sync.OnceValue(d.endProcesses)
	d.servicesClosed = sync.OnceValue(d.closeServices)
	err = srv.Uploads().Restore(opts.Upgrades.uploads())
	if err == nil {
		d.clients, err = d.newClients()
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// outputFiles returns the files for output of processes.
func outputFiles(cfg config.Config, logger *slog.Logger) *eventlog.Files {
	directory := outputDirectory(cfg)
	files := eventlog.NewFiles(directory, func(err error) {
		logger.Error("output of processes without an owner is lost: it cannot be written", "output_directory", directory, "error", err)
	})
	files.SetLimits(int64(cfg.OutputFile), int64(cfg.OutputFileTotal))
	return files
}

// outputDirectory returns the directory of files for output of processes.
func outputDirectory(cfg config.Config) string {
	directory := cmp.Or(cfg.OutputDirectory, os.Getenv("TMPDIR"))
	if directory == "" && unix.Access("/var/tmp", unix.W_OK) == nil {
		directory = "/var/tmp" // /tmp may be in memory
	}
	return cmp.Or(directory, os.TempDir())
}

// CheckOutputDirectory creates a file as for output of a process without an owner, and removes it.
// It returns the directory, and why that fails. It may block on the disk.
func CheckOutputDirectory(cfg Config) (directory string, err error) {
	directory = outputDirectory(cfg)
	return directory, eventlog.NewFiles(directory, nil).Check()
}

// newClients returns the clients of JSON-RPC and HTTP of a begin.
func (d *Daemon) newClients() (*clients, error) {
	return newClients(clientsConfig{
		cfg: d.settings(), authenticator: d.authenticator, logger: d.opts.Logger, audit: d.audit,
		upstream: func(info clientAuthInfo) grpc.ClientConnInterface { return d.channel.As(info) },
		metrics:  d.metrics,
		ready:    func() bool { return true },
		changed:  d.opts.OnChange,
	})
}

// sessionConfig is the configuration of the sessions.
func sessionConfig(cfg config.Config, opts Options, auditor *auditcall.Auditor) session.Config {
	return session.Config{
		DefaultGrace:    time.Duration(cfg.DefaultGrace),
		MaxGrace:        time.Duration(cfg.MaxGrace),
		ClosedRetention: time.Duration(cfg.ClosedRetention),
		UnseenRetention: time.Duration(cfg.UnseenRetention),
		OnChange:        opts.OnChange,
		OnClosed:        noteClosed(auditor, opts.Logger),
		Logger:          opts.Logger,

		UnseenPerPrincipal:      int(cfg.UnseenProcesses),
		UnseenBytesPerPrincipal: int64(cfg.UnseenBytes),
		MaxKeep:                 time.Duration(cfg.MaxKeep),

		ProcessesPerSession:  int(cfg.Processes),
		SessionsPerPrincipal: int(cfg.Sessions),
		SessionsTotal:        int(cfg.SessionsTotal),
		RetainedTotal:        int64(cfg.RetainedTotal),
	}
}

// limits is the configuration of the server's limits.
func limits(cfg config.Config) server.Limits {
	return server.Limits{
		ServerLimits: &execwirev1.ServerLimits{
			RetainedOutputBytes:         uint64(cfg.RetainedOutput),
			RetainedEvents:              uint64(cfg.RetainedEvents),
			WindowBytes:                 uint64(cfg.Window),
			SnapshotBytes:               uint64(cfg.Snapshot),
			ReadersPerProcess:           uint64(cfg.Readers),
			StdinWriteBytes:             uint64(cfg.StdinWrite),
			StdinQueueBytes:             uint64(cfg.StdinQueue),
			MessageBytes:                uint64(cfg.Message),
			ReadFileBytes:               uint64(cfg.ReadFile),
			UploadRetention:             durationpb.New(time.Duration(cfg.UploadRetention)),
			UploadsPerPrincipal:         uint64(cfg.Uploads),
			DefaultGrace:                durationpb.New(time.Duration(cfg.DefaultGrace)),
			MaxGrace:                    durationpb.New(time.Duration(cfg.MaxGrace)),
			ClosedProcessRetention:      durationpb.New(time.Duration(cfg.ClosedRetention)),
			UnseenProcessRetention:      durationpb.New(time.Duration(cfg.UnseenRetention)),
			UnseenProcessesPerPrincipal: uint64(cfg.UnseenProcesses),

			UnseenProcessBytesPerPrincipal: uint64(cfg.UnseenBytes),

			MaxProcessRetention:         durationpb.New(time.Duration(cfg.MaxKeep)),
			ShutdownGrace:               durationpb.New(time.Duration(cfg.ShutdownGrace)),
			MaxWait:                     durationpb.New(time.Duration(cfg.MaxWait)),
			ProcessesPerSession:         uint64(cfg.Processes),
			SessionsPerPrincipal:        uint64(cfg.Sessions),
			SessionsTotal:               uint64(cfg.SessionsTotal),
			RetainedOutputBytesTotal:    uint64(cfg.RetainedTotal),
			OutputFileBytes:             uint64(min(cfg.OutputFile, cfg.OutputFileTotal)),
			OutputFileBytesTotal:        uint64(cfg.OutputFileTotal),
			StreamsPerConnection:        uint64(cfg.Streams),
			HeaderListBytes:             uint64(cfg.HeaderList),
			HttpRequestsPerPrincipal:    uint64(cfg.HTTPRequests),
			HttpHeadBytes:               uint64(cfg.HTTPHead),
			PortConnectionsPerPrincipal: uint64(cfg.PortConnections),
			PortListenersPerPrincipal:   uint64(cfg.PortListeners),
			PortBacklog:                 uint64(cfg.PortBacklog),
			PortAcceptTimeout:           durationpb.New(time.Duration(cfg.PortAcceptTimeout)),
			FileHandlesPerSession:       uint64(cfg.FileHandles),
			WatchesPerPrincipal:         uint64(cfg.Watches),
			AwaitedPathsPerPrincipal:    uint64(cfg.AwaitedPaths),
			WatchedDirectoriesPerWatch:  uint64(cfg.WatchedDirectories),
			WatchPendingBytes:           uint64(cfg.WatchPending),
			FileHandleIdleTime:          durationpb.New(time.Duration(cfg.FileHandleIdleTime)),
		},
		NoDirect:         !cfg.HasDirectExec(),
		NoPrepared:       !cfg.HasPreparedExec(),
		FileURLMaxAge:    time.Duration(cfg.SignedURLMaxAge),
		AbandonedUploads: int(cfg.AbandonedUploads),
		FileWorkers:      int(cfg.FileWorkers),
		FileWorkersTotal: int(cfg.FileWorkersTotal),
		FileWorkerIdle:   time.Duration(cfg.FileWorkerIdleTime),
	}
}

// Conn returns a connection to the server inside this program. It is valid until
// Close.
func (d *Daemon) Conn() grpc.ClientConnInterface { return d.channel }

// Close kills all processes and waits for their end. If something hangs in the system
// it gives up and returns an error. Calling it again returns the same. Do not call it
// while [Daemon.Serve] runs, which closes the daemon itself.
func (d *Daemon) Close() error {
	return errors.Join(d.processesEnded(), d.servicesClosed())
}
