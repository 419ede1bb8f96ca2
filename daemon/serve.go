package daemon

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
)

// Serve opens the configured listeners and serves until ctx ends. Then it drains:
// health and /readyz report it, nothing new is started, running processes may finish
// within the shutdown grace and are terminated after it, clients receive the ends of
// their processes and are disconnected, and Serve returns nil. The end of now cuts
// the grace short. If a listener cannot be opened, Serve serves nothing and returns
// the error.
//
// The standard streams serve a single client. If they are the only listener, and the
// daemon is not reached through a relay, Serve drains and returns nil when that
// client disconnects.
//
// A daemon with remote is reached through the relay while Serve runs. If that
// fails for good, Serve drains and returns a [*RemoteError].
func (d *Daemon) Serve(ctx, now context.Context) error {
	open, err := d.open(ctx)
	if err != nil {
		return err
	}
	on, err := d.begin(open)
	if err != nil {
		open.close()
		return err
	}
	if !d.opts.Upgrades.Upgraded() { // clients know them
		open.announce(d.opts.OnListen)
	}
	d.logUpgraded()
	if d.opts.OnReady != nil {
		d.opts.OnReady()
	}
	left := open.serveStdio(d.clients, &on.goroutines)
	if on.relayed != nil {
		left = nil // clients can connect through the relay
	}
	for served := true; served; {
		served = false
		select {
		case <-ctx.Done():
		case err = <-on.failed:
		case <-left:
			now = endedContext(errClientLeft)
		case next := <-d.upgrades.begun:
			on, err = d.upgrade(ctx, next, open, on)
			served = err == nil
		}
	}
	close(d.upgrades.over)
	return d.stop(now, open, on, err)
}

// serving is what serves the clients of a daemon.
type serving struct {
	grpc       *grpc.Server
	relayed    *remote    // nil without a relay
	failed     chan error // receives the fatal error of the relay
	probed     context.CancelCauseFunc
	goroutines sync.WaitGroup
}

// begin begins to serve clients.
func (d *Daemon) begin(open *listeners) (*serving, error) {
	grpcQueue, httpQueue := listen.NewQueue(), listen.NewQueue()
	relayed, err := d.openRemote(grpcQueue)
	if err != nil {
		return nil, err
	}
	on := &serving{grpc: d.newGRPCServer(), relayed: relayed, failed: make(chan error, 1)}
	on.goroutines.Go(func() { _ = on.grpc.Serve(grpcQueue) }) // returns when the server is stopped
	clients := d.clients
	on.goroutines.Go(func() { clients.serve(httpQueue) })
	open.dispatch(grpcQueue, httpQueue, &on.goroutines)
	if relayed != nil {
		relayed.begin(on.failed)
	}
	probing, probed := context.WithCancelCause(context.Background())
	on.probed = probed
	on.goroutines.Go(func() { d.probeSandboxes(probing) })
	return on, nil
}

// stop is the end of Serve, for which err is the reason.
func (d *Daemon) stop(now context.Context, open *listeners, on *serving, err error) error {
	on.probed(errStopping)
	d.health.Shutdown()
	d.streams.drain(errStopping)
	d.clients.refuse()
	d.drain(now)
	// Owners receive the ends of their processes before their streams end.
	_ = d.processesEnded() // Close returns the error, too
	d.streams.stop(errStopped)
	d.server.EndWatches()
	open.closeNetwork()
	var clientsErr error
	disconnected := runAsync(func() { clientsErr = d.clients.stop() })
	stopErr := stopServer(on.grpc, flushTimeout, handlerTimeout)
	<-disconnected
	stopErr = errors.Join(stopErr, clientsErr)
	if on.relayed != nil {
		stopErr = errors.Join(stopErr, on.relayed.close())
	}
	if stopErr != nil {
		return errors.Join(err, stopErr, d.Close()) // the listeners are closed, and the goroutines that serve them wait for handlers
	}
	if on.relayed != nil {
		on.relayed.server.wait()
	}
	d.streams.receivers.Wait()
	on.goroutines.Wait()
	return errors.Join(err, d.Close())
}

// open opens the listeners.
func (d *Daemon) open(ctx context.Context) (*listeners, error) {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	opener := d.opener(d.settings())
	var err error
	if opener.taken, err = d.opts.Upgrades.sockets(); err != nil {
		return nil, err
	}
	opened, err := opener.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.opts.Upgrades.checkTaken(); err != nil {
		opened.close()
		return nil, err
	}
	refuseListeners(d.rules, opened.inOrder)
	d.listeners = opened
	return opened, nil
}

func (d *Daemon) opener(cfg config.Config) opener {
	return opener{cfg: cfg, authenticator: d.authenticator, users: d.authenticator.users, inherited: d.opts.Inherited, logger: d.opts.Logger, confined: d.confined}
}

// errClientLeft cuts the shutdown grace short: there is no client to wait for.
var errClientLeft = errors.New("the only client has left")

// endedContext returns a context that has ended.
func endedContext(cause error) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	return ctx
}

// drain lets processes finish within the shutdown grace, unless now ends first. Then
// it lets owners that have lost their connection return for the end of theirs.
func (d *Daemon) drain(now context.Context) {
	d.sessions.Drain()
	if n := d.sessions.Totals().Running; n > 0 && d.opts.OnDrain != nil && now.Err() == nil {
		d.opts.OnDrain(n)
	}
	grace, cancel := context.WithTimeoutCause(now, time.Duration(d.settings().ShutdownGrace), errors.New("the shutdown grace is over"))
	defer cancel()
	err := d.sessions.WaitClosed(grace)
	if err == nil {
		returned, cancel := context.WithTimeoutCause(grace, returnTimeout, errNotReturned)
		defer cancel()
		err = d.sessions.WaitIdle(returned)
	}
	if left := d.sessions.Totals().Running; err != nil && left > 0 {
		d.opts.Logger.Info("terminating the remaining processes", "processes", left, "reason", err.Error())
	}
}
