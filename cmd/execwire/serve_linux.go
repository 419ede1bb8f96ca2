package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/confinement"
	"github.com/execwire/execwire/internal/flags"
	"github.com/execwire/execwire/internal/guardian"
	"github.com/execwire/execwire/internal/handover"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/observe"
	"github.com/execwire/execwire/internal/syslimit"
	"github.com/execwire/execwire/internal/systemd"
	"github.com/execwire/execwire/relay/executor"
)

type serveFlags struct {
	log              *flags.Log
	untilStdinCloses bool
	hasToken         bool // whether a token for client commands is in the environment
	check            int  // of [handover.CheckFlag]; 0: serve
}

func newServeCommand(std streams) *cobra.Command {
	var options serveFlags
	command := &cobra.Command{
		Use:   "serve [--listen URL]... [--remote URL --executor-id ID] [--config FILE]",
		Short: "Run a server",
		Long: `serve runs a server until SIGTERM or SIGINT. Then it starts no new processes, lets
existing ones end within the shutdown grace period, terminates the rest and exits. A
second signal terminates at once. With --until-stdin-closes the end of stdin works
like the first signal, so that a program that starts a server leaves none behind.

The server runs under a guardian, which is this process: if the server is killed, the
guardian kills all its processes; if the guardian is killed, the server shuts down.
The setting guardian disables it.

SIGHUP makes the server read its configuration again, as execwire reload does; the log
says what has changed, or why nothing has. SIGHUP never ends a server. SIGUSR2
replaces the program of the server by the one that is at its path now, as execwire upgrade
does; its processes go on. If the new program fails to take over, it exits with 123.

A listener with tcp://, tls:// or unix:// serves gRPC, HTTP and the exec-server
JSON-RPC over websockets; clients of the latter connect to ws:// or wss:// with the
same address. grpc:// and grpcs:// serve only gRPC, ws:// and wss:// only HTTP and
websockets. stdio serves a single client of JSON-RPC on stdin and stdout: when stdin
ends its session is closed, and a server without other listeners exits.

With --remote the server connects to the hub at URL, and clients reach it through the
hub by the id of --executor-id. Without --listen it has no listeners. It reconnects
after a lost connection, and processes continue. The server exits if the hub refuses
it, or if another server connects with its id; see docs/remote.md.

serve prints the URL of every listener on stdout, one per line, when it accepts
clients, or logs it if a client uses stdout. The log goes to stderr. Settings come
from the configuration file, the environment (EXECWIRE_ and the setting's name in
upper case) and flags; later ones override earlier ones. Keys and tokens are in files
that settings name. To accept clients from other hosts a server needs a table of
principals, or wss:// and --ws-auth for websockets, and should have a certificate; see
docs/security.md.` + settingsHelp,
		Example: `  execwire serve
  execwire serve --listen unix:///run/user/1000/execwire.sock
  execwire serve --listen tcp://127.0.0.1:0 --log-format json
  execwire serve --listen tls://0.0.0.0:7420 --tls-cert server.pem --tls-key server.key --principals-file principals.toml
  execwire serve --listen stdio
  execwire serve --remote https://hub.example.org --executor-id build-1 --remote-token-file /etc/execwire/hub.token
  execwire serve --ws-auth capability-token --ws-token-file /etc/execwire/ws.token`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			return serve(command, options, std)
		},
	}
	f := command.Flags()
	addServeFlags(f)
	f.BoolVar(&options.untilStdinCloses, "until-stdin-closes", false, "also shut down when stdin ends, as with SIGTERM")
	options.log = flags.AddServerLog(f)
	f.IntVar(&options.check, handover.CheckFlag, 0, "only check whether this program can go on with the state of a descriptor")
	_ = f.MarkHidden(handover.CheckFlag) // it exists
	options.hasToken = os.Getenv(tokenVariable) != ""
	return command
}

func serve(command *cobra.Command, options serveFlags, std streams) error {
	if options.check != 0 {
		return checkUpgrade(command, options.check, std)
	}
	watch, err := guardian.Guarded()
	if err != nil {
		return err
	}
	taken, err := takeOver(watch, std)
	if err == nil {
		err = serveWith(command, options, std, watch, taken)
	}
	return taken.explain(err)
}

// checkUpgrade answers a check of the server that runs, whose state is in a descriptor.
func checkUpgrade(command *cobra.Command, descriptor int, std streams) error {
	if err := protectMemory(); err != nil {
		return err
	}
	cfg, _, err := loadServe(command)
	if err != nil {
		return err
	}
	logger := slog.New(slog.DiscardHandler)
	if _, err := findRemoteCredentials(cfg, logger); err != nil {
		return err
	}
	if err := daemon.CheckUpgrade(cfg, daemon.Options{Logger: logger}, os.NewFile(uintptr(descriptor), "the state")); err != nil {
		return err
	}
	return handover.Accept(std.out, buildVersion())
}

// takeOverTimeout is how long this program may take until it serves in place of another one.
const takeOverTimeout = 30 * time.Second

// takenOver is what this program has from the one that it replaces, if there was one.
type takenOver struct {
	upgrades *daemon.Upgrades
	isReady  atomic.Bool
	late     *time.Timer // ends this program; nil if there was none
}

// takeOver takes what the program before has left for this one. The result is not nil.
func takeOver(watch *guardian.Watch, std streams) (*takenOver, error) {
	t := &takenOver{}
	upgrades, err := daemon.TakeUpgrades()
	if err != nil {
		return t, err
	}
	t.upgrades = upgrades
	t.upgrades.Args = os.Args
	t.upgrades.Environ = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "LISTEN_") // sockets of systemd, which are those of listeners by now
	})
	if watch != nil {
		t.upgrades.Keep = map[string]syscall.Conn{guardian.PipeVariable: watch.Pipe()}
	}
	if t.upgrades.Upgraded() {
		confinement.MarkServer()                // not possible afterwards, except for root
		if err := protectMemory(); err != nil { // execve has undone it, and there are processes
			return t, err
		}
		t.late = time.AfterFunc(takeOverTimeout, func() {
			fmt.Fprintln(std.err, "execwire:", t.explain(fmt.Errorf("it did not serve after %v", takeOverTimeout)))
			os.Exit(codeUpgrade)
		})
	}
	return t, nil
}

// ready records that this program serves.
func (t *takenOver) ready() {
	t.isReady.Store(true)
	if t.late != nil {
		t.late.Stop()
	}
}

// explain returns the error of a program that has replaced another one and does not serve.
// Others are unchanged.
func (t *takenOver) explain(err error) error {
	if err == nil || t.isReady.Load() || t.upgrades != nil && !t.upgrades.Upgraded() {
		return err
	}
	return &exitError{code: codeUpgrade, err: fmt.Errorf("the upgrade has failed in the new program, and all processes end: %w", err)}
}

// serveWith serves as the program before this one, if there was one.
func serveWith(command *cobra.Command, options serveFlags, std streams, watch *guardian.Watch, taken *takenOver) error {
	service, err := systemd.Inherit()
	if err != nil {
		return err
	}
	logger, err := startLog(command, options.log, std)
	if err != nil {
		return err
	}
	if options.hasToken {
		logger.Warn("a server does not use the token in the environment, and does not pass it to processes: unset it", "variable", tokenVariable)
	}
	cfg, _, err := loadServe(command)
	if err != nil {
		return err
	}
	if options.untilStdinCloses && hasListener(cfg.Listen, listen.SchemeStdio) {
		return usageError(command, errors.New("--until-stdin-closes is not for stdio, whose client ends the server by itself"))
	}
	credentials, err := findRemoteCredentials(cfg, logger)
	if err != nil {
		return err
	}
	switch {
	case watch == nil && cfg.Guardian == guardianOn && len(service.Sockets) > 0:
		return errors.New("the sockets of systemd cannot be passed to a server under a guardian: set guardian to systemd (EXECWIRE_GUARDIAN=systemd in the unit)")
	case cfg.Guardian == guardianSystemd && !service.IsNotified():
		return errors.New("guardian is systemd, and systemd did not start this program by a unit with Type=notify: write on, or use such a unit with KillMode=mixed or control-group")
	case watch == nil && cfg.Guardian == guardianOn && taken.upgrades.Upgraded():
		return errors.New("the guardian is missing")
	case watch == nil && cfg.Guardian == guardianOn:
		service.Restore()
		return guard(guardian.Options{Cgroups: cfg.Cgroup, ReadsInput: options.untilStdinCloses || hasListener(cfg.Listen, listen.SchemeStdio)})
	}
	environ := taken.upgrades.Environ
	load := func() (config.Config, error) {
		cfg, _, err := readSettings(command, environ, nil)
		return cfg, err
	}
	if cfg.Guardian == guardianSystemd { // processes are not services of systemd
		if err := os.Unsetenv("EXECWIRE_GUARDIAN"); err != nil {
			return err
		}
	}
	hangups := observe.NotifyHangups(logger, observe.Starting)
	defer hangups.Stop()
	config.WarnOfVariables(logger, config.Settings(), os.Environ())
	unsetRemoteSecrets(cfg)
	return explainRemote(explainWebsocket(command, serveUntilStopped(cfg, load, hangups, credentials, logger, watch, service, taken, options.untilStdinCloses, std)))
}

// Values of the setting guardian.
const (
	guardianOn      = "on"
	guardianSystemd = "systemd"
)

// startLog returns the logger of a command that serves, names it, and protects its memory.
func startLog(command *cobra.Command, log *flags.Log, std streams) (*slog.Logger, error) {
	logger, err := log.Logger(std.err)
	if err != nil {
		return nil, usageError(command, err)
	}
	confinement.MarkServer()
	return logger, protectMemory()
}

// announceURLs returns a function that reports the URLs of listeners: on stdout, unless a
// client uses it.
func announceURLs(cfg config.Config, logger *slog.Logger, out io.Writer) func(url string) {
	if hasListener(cfg.Listen, listen.SchemeStdio) {
		return func(url string) { logger.Info("listening", "url", url) }
	}
	return func(url string) { fmt.Fprintln(out, url) }
}

// serveUntilStopped serves until a signal, the end of the guardian, or the end of stdin
// if requested.
func serveUntilStopped(cfg config.Config, load func() (config.Config, error), hangups *observe.Hangups, credentials executor.Credentials, logger *slog.Logger, watch *guardian.Watch, service *systemd.Service, taken *takenOver, untilStdinCloses bool, std streams) error {
	notify := func(state string) {
		if err := service.Notify(state); err != nil {
			logger.Error(err.Error())
		}
	}
	d, err := daemon.New(cfg, daemon.Options{
		Version:  buildVersion(),
		Logger:   logger,
		Guarded:  watch != nil || cfg.Guardian == guardianSystemd,
		OnChange: tuneMemory().changed,

		LoadConfig: load,

		RemoteCredentials: credentials,
		// Nothing else in this program starts processes.
		AdoptOrphans: true,
		OnListen:     announceURLs(cfg, logger, std.out),
		OnReady: func() {
			taken.ready()
			notify(systemd.Ready)
		},
		Upgrades:  taken.upgrades,
		Inherited: service.Sockets,
		OnDrain: func(processes int) {
			logger.Info("waiting for processes to end; another signal ends them at once", "processes", processes)
		},
	})
	if err != nil {
		return err
	}
	hangups.Handle(func() { _, _ = d.Reload(context.Background()) }) // it logs errors
	ctx, now := stopSignals(logger, watch.Gone())
	go upgradeOnSignal(ctx, d, logger)
	defer systemd.AfterDone(ctx, func() { notify(systemd.Stopping) })()
	if untilStdinCloses {
		ctx = untilEOF(ctx, std.in)
	}
	if err := d.Serve(ctx, now); err != nil {
		return errors.Join(err, d.Close())
	}
	if cause := context.Cause(ctx); errors.Is(cause, errUnguarded) {
		return cause
	}
	return nil
}

const (
	// collectorSlack is how much garbage may accumulate in addition to the size of the
	// live heap. The live heap of a server is mostly a few MiB, and would be collected
	// for every 4 MiB of output: that took a quarter of the CPU time of the server.
	collectorSlack = 32 << 20
	// trimInterval is how long after a change memory is returned to the system. A trim
	// takes some milliseconds of CPU time.
	trimInterval = 2 * time.Second
)

// memory keeps an idle server as small as after its start: the runtime does not collect
// while nothing is allocated, so evicted output would stay for minutes. It does nothing
// while nothing changes.
type memory struct {
	slack   []byte      // never touched: address space without memory
	trim    func()      // collects, and returns free memory to the system
	pending atomic.Bool // whether a trim follows
}

// memoryVariable is the memory limit of the runtime.
const memoryVariable = "GOMEMLIMIT"

// tuneMemory configures the collector. Unless the environment sets a limit, this
// program gets half of the memory available to it and its processes.
func tuneMemory() *memory {
	slack := int64(collectorSlack)
	if most, _ := (syslimit.System{}).Memory(); most > 0 {
		limit, less := memoryShare(most)
		if slack = less; os.Getenv(memoryVariable) == "" {
			debug.SetMemoryLimit(limit)
		}
	}
	var first sync.Once
	m := &memory{slack: make([]byte, slack), trim: func() {
		runtime.GC() // a pool keeps over one collection what it has
		debug.FreeOSMemory()
		first.Do(syslimit.ReleaseProgram)
	}}
	m.changed() // by the start
	return m
}

// memoryShare returns the memory limit of the runtime and the size of the slack, which
// counts towards the limit without using memory.
func memoryShare(most uint64) (limit, slack int64) {
	slack = min(collectorSlack, int64(most/16))
	return int64(most/2) + slack, slack
}

// changed records that there may be garbage. It never blocks and may be called
// concurrently.
func (m *memory) changed() {
	if m.pending.CompareAndSwap(false, true) {
		time.AfterFunc(trimInterval, func() {
			m.pending.Store(false)
			m.trim()
		})
	}
}

// protectMemory protects the memory and environment of this program from other programs
// of its user, including the processes that it starts: they cannot read it through
// /proc or trace it, and there are no core dumps. Those of root can.
func protectMemory() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("failed to protect the memory of this program: %w", err)
	}
	return nil
}
