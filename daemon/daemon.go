// Package daemon wires a server together: supervisor, sessions, services and
// listeners from a configuration. It is what the command line runs, and what a
// program embeds that wants an execwire server inside itself.
package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/inproc"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/server"
)

// Options is what a daemon needs beside its configuration.
type Options struct {
	// Version is reported to clients. Empty is "devel".
	Version string
	// Logger gets the daemon's log. Nil discards.
	Logger *slog.Logger
	// Environ is what environment policies take from. Nil is the environment of
	// this program.
	Environ []string
	// OnListen is called with the URL of every listener as it begins to accept,
	// with the port that the kernel chose. Nil calls nothing.
	OnListen func(url string)
	// OnDrain is called when the daemon was told to stop while processes run,
	// with their number. Nil calls nothing.
	OnDrain func(processes int)
	// OnChange is called when a process was started, has closed or was
	// forgotten: when memory may have become free. It must not block. Nil calls
	// nothing.
	OnChange func()
}

// Daemon is a server with its processes. All methods may be called
// concurrently.
type Daemon struct {
	cfg      config.Config
	opts     Options
	sessions *session.Registry
	server   *server.Server
	channel  *inproc.Channel

	closeOnce sync.Once
}

// New makes a daemon that serves nobody yet but [Daemon.Conn]. It must be
// closed. The configuration is checked first.
func New(cfg config.Config, opts Options) (*Daemon, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Version == "" {
		opts.Version = "devel"
	}
	if opts.Environ == nil {
		opts.Environ = os.Environ()
	}
	supervisor := process.NewSupervisor(process.Config{
		StdinQueueBytes: int(cfg.StdinQueue),
		MaxWriteBytes:   int(cfg.StdinWrite),
		Logger:          opts.Logger,
	})
	sessions := session.NewRegistry(supervisor, session.Config{
		DefaultGrace:    time.Duration(cfg.DefaultGrace),
		MaxGrace:        time.Duration(cfg.MaxGrace),
		ClosedRetention: time.Duration(cfg.ClosedRetention),
		OnChange:        opts.OnChange,
		Logger:          opts.Logger,
	})
	srv := server.New(server.Config{
		Sessions:     sessions,
		Limits:       limits(cfg),
		Authenticate: authenticate,
		Logger:       opts.Logger,
		Version:      opts.Version,
		Environ:      opts.Environ,
	})
	channel := inproc.New(
		inproc.WithUnaryInterceptors(srv.UnaryInterceptors()...),
		inproc.WithStreamInterceptors(srv.StreamInterceptors()...),
		inproc.WithAuthInfo(inproc.AuthInfo{}),
	)
	srv.Register(channel)
	return &Daemon{cfg: cfg, opts: opts, sessions: sessions, server: srv, channel: channel}, nil
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
		DefaultGrace:    time.Duration(cfg.DefaultGrace),
		MaxGrace:        time.Duration(cfg.MaxGrace),
		ClosedRetention: time.Duration(cfg.ClosedRetention),
		ShutdownGrace:   time.Duration(cfg.ShutdownGrace),
		MaxWait:         time.Duration(cfg.MaxWait),
	}
}

// Conn returns a connection to the server inside this program, for generated
// clients. It is valid until Close.
func (d *Daemon) Conn() grpc.ClientConnInterface { return d.channel }

// closeTimeout bounds how long Close waits for what it has killed.
const closeTimeout = 10 * time.Second

// Close ends every process at once, waits until nothing of them is left, and
// returns. Calling it again returns the same. It is not for use while
// [Daemon.Serve] runs, which closes the daemon itself.
func (d *Daemon) Close() error {
	err := d.endProcesses()
	d.closeOnce.Do(func() {
		d.shutdownChannel()
		d.server.Close()
	})
	return err
}

// endProcesses kills what runs and waits until it is gone.
func (d *Daemon) endProcesses() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeTimeout,
		fmt.Errorf("processes were still there %v after they were killed", closeTimeout))
	defer cancel()
	return d.sessions.Close(ctx)
}

// shutdownChannel lets callers inside this program receive the end of what
// they were told, and then cuts off those that do not.
func (d *Daemon) shutdownChannel() {
	flush, cancel := context.WithTimeoutCause(context.Background(), flushTimeout, errFlush)
	defer cancel()
	if err := d.channel.Shutdown(flush); err != nil {
		d.opts.Logger.Warn("cut callers off", "reason", err.Error())
	}
	d.channel.Close()
}
