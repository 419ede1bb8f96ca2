package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/confinement"
	"github.com/execwire/execwire/internal/guardian"
	"github.com/execwire/execwire/internal/syslimit"
)

// That a constant of this program is not that of the server does not compile.
var (
	_ = map[bool]struct{}{false: {}, localURL == daemon.LocalURL: {}}
	_ = map[bool]struct{}{false: {}, defaultServer == daemon.DefaultListenURL: {}}
)

// serverMain runs the programs that a server starts from this binary.
func serverMain() { daemon.Main() }

// openEmbedded starts a server inside this program, which ends when the client is closed.
func openEmbedded(ctx context.Context) (*client.Client, error) {
	cfg, err := daemon.LoadConfig("", os.Environ())
	if err != nil {
		return nil, err
	}
	confinement.MarkServer()
	return daemon.Open(ctx, localURL, daemon.OpenOptions{Config: &cfg, Daemon: daemon.Options{
		Version:      buildVersion(),
		AdoptOrphans: true, // nothing else in this program starts processes
	}})
}

// guardianWatch watches the guardian of this program.
type guardianWatch = guardian.Watch

// guarded returns the watch of this program's guardian; nil without one.
func guarded() (*guardianWatch, error) { return guardian.Guarded() }

// errUnguarded stops a server whose guardian was killed. If it continued and were
// killed too, its processes would survive.
var errUnguarded = errors.New("the guardian was killed, so the server has ended all processes and stopped: start it again")

// errRunUnguarded ends a run whose guardian was killed.
var errRunUnguarded = errors.New("the guardian was killed")

// unguardedTimeout is how long a run may take to end after its guardian and processes
// ended: it blocks if its output is not read.
const unguardedTimeout = time.Second

// guardianThreads are created in advance, so that processes can be killed when the
// system has no threads left.
const guardianThreads = 8

// guard runs the server in a child process and stays as its guardian. It ends as the
// server does.
func guard(options guardian.Options) error {
	syslimit.MakeThreads(guardianThreads)
	code, err := guardian.Run(options)
	switch {
	case code == 0 && err == nil:
		return nil
	case code == 0:
		code = codeFailed
	}
	return &exitError{code: code, err: err}
}

// guardEmbedded runs this program again in a child process, with this process as its
// guardian, if the embedded server is to have one. done reports whether it did; err is
// the result.
func guardEmbedded() (done bool, err error) {
	cfg, err := daemon.LoadConfig("", os.Environ())
	if err != nil || cfg.Guardian == "off" {
		return err != nil, err
	}
	return true, guard(guardian.Options{Cgroups: cfg.Cgroup, SharesGroup: true})
}

// endUnguarded ends a run when its guardian is gone, and with the client of the embedded
// server all processes.
func endUnguarded(watch *guardian.Watch, cancel context.CancelCauseFunc, server *client.Client) {
	<-watch.Gone()
	cancel(errRunUnguarded)
	_ = server.Close()
	<-time.NewTimer(unguardedTimeout).C
	os.Exit(codeFailed)
}
