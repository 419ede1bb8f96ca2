// Package daemon wires a server together: supervisor, sessions, services and
// listeners from a configuration. It is what the command line runs, and what a
// program embeds that wants an execwire server inside itself: docs/embedding.md has
// an introduction.
//
// [Open] returns a client of the server that a URL names, in this program or
// elsewhere. [Run] is a server with listeners, [RunExecutor] one that is reached
// through a relay, and [New] makes one step by step. Whichever it is, [Main] has to
// come first in the main function of a program that is to confine anything.
package daemon

import (
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/httpclient"
	"github.com/execwire/execwire/internal/inproc"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/internal/syslimit"
	"github.com/execwire/execwire/relay/executor"
	"github.com/execwire/execwire/server"
)

// Options is what a daemon needs beside its configuration.
type Options struct {
	// Version is reported to clients. Empty is "devel".
	Version string
	// Logger gets the daemon's log. Nil discards.
	Logger *slog.Logger
	// Environ is what environment policies take from. Nil is the environment of
	// this program. What may be for the registry of a relay is taken out, if the
	// configuration has one.
	Environ []string
	// AdoptOrphans makes the program the parent of processes' descendants whose
	// own parents have ended, without which no kill can be verified. It is for
	// programs that are nothing but a server: children of the program that call
	// setsid, whoever started them, then count as descendants of processes.
	AdoptOrphans bool
	// Guarded is reported to clients: whether a guardian ends all processes
	// should this program be killed.
	Guarded bool
	// RemoteCredentials are shown to the registry of the relay, if the
	// configuration has one; see [executor.FindCredentials]. Nil shows none.
	RemoteCredentials executor.Credentials
	// OnListen is called with the URL of every listener as it begins to accept,
	// with the port that the kernel chose. Nil calls nothing.
	OnListen func(url string)
	// OnDrain is called when the daemon was told to stop while processes run,
	// with their number. Nil calls nothing.
	OnDrain func(processes int)
	// OnChange is called when a process was started, has closed or was
	// forgotten, when a client of JSON-RPC has come or gone, and when a call has
	// moved much content of files: when memory may have become free. It must neither block nor use the daemon. Nil calls
	// nothing.
	OnChange func()
}

// Daemon is a server with its processes. All methods may be called
// concurrently.
type Daemon struct {
	cfg        config.Config
	opts       Options
	doorkeeper *doorkeeper
	confined   func(auth.Peer, func() bool) error // see [listen.Locks]
	sessions   *session.Registry
	requests   *httpclient.Client // nil if they are switched off
	sandboxes  *sandbox.Sandboxes
	server     *server.Server
	channel    *inproc.Channel
	clients    *clients
	reserve    ProcessReserve

	// Each does its part of closing once.
	processesEnded func() error
	servicesClosed func() error
}

// New makes a daemon that serves nobody yet but [Daemon.Conn]. It must be
// closed. The configuration is checked first, and the table of principals read. If
// a sandbox is required it is tried out, which takes some tens of milliseconds;
// otherwise that is done when one is needed, by this program started once more: its
// main function calls [Main] first, or no sandbox works.
func New(cfg config.Config, opts Options) (*Daemon, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.RetainedTotal = config.Bytes(retainedTotal(cfg, syslimit.System{}))
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Version == "" {
		opts.Version = "devel"
	}
	if opts.Environ == nil {
		opts.Environ = os.Environ()
	}
	if cfg.HasRemote() {
		opts.Environ = withoutSecrets(opts.Environ)
	}
	doorkeeper, err := newDoorkeeper(cfg, opts.Logger)
	if err != nil {
		return nil, err
	}
	var channel *inproc.Channel
	clients, err := newClients(clientsConfig{
		cfg: cfg, doorkeeper: doorkeeper, logger: opts.Logger,
		upstream: func(info clientAuthInfo) grpc.ClientConnInterface { return channel.As(info) },
		ready:    func() bool { return true },
		changed:  opts.OnChange,
	})
	if err != nil {
		return nil, err
	}
	sandboxes, required, err := openSandboxes(cfg, opts.Environ)
	if err != nil {
		return nil, err
	}
	cgroups, err := process.OpenCgroups(cfg.Cgroup)
	if err != nil {
		sandboxes.Close()
		return nil, err
	}
	syslimit.MakeThreads(serverThreads)
	reserve := reserveProcesses(cfg, syslimit.System{}, cgroups)
	supervisor := process.NewSupervisor(process.Config{
		Cgroups:         cgroups,
		UserProcesses:   reserve.UserProcesses,
		OOMScoreAdjust:  int(cfg.OOMScoreAdjust),
		AdoptOrphans:    opts.AdoptOrphans,
		StdinQueueBytes: int(cfg.StdinQueue),
		MaxWriteBytes:   int(cfg.StdinWrite),
		Logger:          opts.Logger,
	})
	sessions := session.NewRegistry(supervisor, session.Config{
		DefaultGrace:    time.Duration(cfg.DefaultGrace),
		MaxGrace:        time.Duration(cfg.MaxGrace),
		ClosedRetention: time.Duration(cfg.ClosedRetention),
		UnseenRetention: time.Duration(cfg.UnseenRetention),
		OnChange:        opts.OnChange,
		Logger:          opts.Logger,

		UnseenPerPrincipal: int(cfg.UnseenProcesses),

		ProcessesPerSession:  int(cfg.Processes),
		SessionsPerPrincipal: int(cfg.Sessions),
		SessionsTotal:        int(cfg.SessionsTotal),
		RetainedTotal:        int64(cfg.RetainedTotal),
		SpoolBytes:           int64(cfg.Spool),
		SpoolDirectory:       cfg.SpoolDirectory,
	})
	requests := newHTTPClient(cfg, required, opts.Logger)
	srv := server.New(server.Config{
		Sessions:     sessions,
		HTTP:         requests,
		Limits:       limits(cfg),
		Authenticate: doorkeeper.authenticate,
		Logger:       opts.Logger,
		Version:      opts.Version,
		KillMethod:   supervisor.KillMethod(),
		Environ:      opts.Environ,
		Guarded:      opts.Guarded,
		KeepWatcher:  true,
		Sandboxes:    sandboxes,
		NoDirect:     !cfg.HasDirectExec(),
		NoPrepared:   !cfg.HasPreparedExec(),
		OnContent:    opts.OnChange,

		RequiredSandbox: required,
		LoopbackAnyUser: doorkeeper.users.AcceptsAny(),
	})
	channel = inproc.New(
		inproc.WithUnaryInterceptors(srv.UnaryInterceptors()...),
		inproc.WithStreamInterceptors(srv.StreamInterceptors()...),
		inproc.WithAuthInfo(inproc.AuthInfo{}),
	)
	srv.Register(channel)
	d := &Daemon{cfg: cfg, opts: opts, doorkeeper: doorkeeper, sessions: sessions, requests: requests, sandboxes: sandboxes, server: srv, channel: channel, clients: clients,
		confined: confinedPeers(supervisor), reserve: reserve}
	d.processesEnded = sync.OnceValue(d.endProcesses)
	d.servicesClosed = sync.OnceValue(d.closeServices)
	return d, nil
}

// limits gives the server its part of the configuration.
func limits(cfg config.Config) server.Limits {
	return server.Limits{
		RetainedOutput:  int(cfg.RetainedOutput),
		RetainedEvents:  int(cfg.RetainedEvents),
		Window:          int(cfg.Window),
		Snapshot:        int(cfg.Snapshot),
		Readers:         int(cfg.Readers),
		StdinWrite:      int(cfg.StdinWrite),
		StdinQueue:      int(cfg.StdinQueue),
		Message:         int(cfg.Message),
		ReadFile:        int(cfg.ReadFile),
		UploadRetention: time.Duration(cfg.UploadRetention),
		Uploads:         int(cfg.Uploads), AbandonedUploads: int(cfg.AbandonedUploads),
		DefaultGrace:    time.Duration(cfg.DefaultGrace),
		MaxGrace:        time.Duration(cfg.MaxGrace),
		ClosedRetention: time.Duration(cfg.ClosedRetention),
		UnseenRetention: time.Duration(cfg.UnseenRetention),
		UnseenProcesses: int(cfg.UnseenProcesses),
		ShutdownGrace:   time.Duration(cfg.ShutdownGrace),
		MaxWait:         time.Duration(cfg.MaxWait),
		Processes:       int(cfg.Processes),
		Sessions:        int(cfg.Sessions),
		SessionsTotal:   int(cfg.SessionsTotal),
		RetainedTotal:   int(cfg.RetainedTotal),
		Spool:           int(cfg.Spool),
		Streams:         int(cfg.Streams),
		HeaderList:      int(cfg.HeaderList),
		HTTPRequests:    int(cfg.HTTPRequests),
		HTTPHead:        int(cfg.HTTPHead),
		FileHandles:     int(cfg.FileHandles),
		Watches:         int(cfg.Watches), AwaitedPaths: int(cfg.AwaitedPaths),
		WatchedDirectories: int(cfg.WatchedDirectories), WatchPending: int(cfg.WatchPending),
		FileHandleIdle: time.Duration(cfg.FileHandleIdleTime),
		FileHelpers:    int(cfg.FileHelpers), FileHelpersTotal: int(cfg.FileHelpersTotal),
		FileHelperIdle: time.Duration(cfg.FileHelperIdleTime),
	}
}

// Conn returns a connection to the server inside this program, for generated
// clients. It is valid until Close.
func (d *Daemon) Conn() grpc.ClientConnInterface { return d.channel }

// Close ends every process at once, waits until nothing of them is left, and
// returns. It gives up on what hangs in the system, which is an error. Calling
// it again returns the same. It is not for use while [Daemon.Serve] runs, which
// closes the daemon itself.
func (d *Daemon) Close() error {
	return errors.Join(d.processesEnded(), d.servicesClosed())
}
