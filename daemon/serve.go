package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/listen"
)

// Serve opens the configured doors and serves until ctx ends. Then it drains:
// health and /readyz say so, nothing new is started, processes that run may
// finish within the shutdown grace and are terminated after it, clients are told
// how they ended and then disconnected, and Serve returns nil. A second context,
// now, cuts the grace short. If a door cannot be opened nothing is served and the
// error says why.
//
// A client on the standard streams ends them for good. If they are the only
// door, and the daemon is not reached through a relay, Serve then ends what is
// left and returns nil.
//
// A daemon with remote_url is reached through the relay as long as Serve runs. If
// that cannot go on Serve ends, draining as above, and returns a [*RemoteError].
func (d *Daemon) Serve(ctx, now context.Context) error {
	doors, err := opener{cfg: d.cfg, doorkeeper: d.doorkeeper, logger: d.opts.Logger, confined: d.confined}.open(ctx)
	if err != nil {
		return err
	}
	relayed, err := d.openRemote()
	if err != nil {
		doors.close()
		return err
	}
	refuseListeners(d.requests, doors.inOrder)
	grpcServer, healthServer, reflections := d.newGRPCServer()
	var serving sync.WaitGroup
	failed := make(chan error, len(doors.inOrder)+2)
	serve := func(with func(net.Listener) error, listeners []listen.Listener) {
		for _, l := range listeners {
			serving.Go(func() {
				if err := with(l); err != nil {
					failed <- fmt.Errorf("failed to serve %s: %w", l.URL(), err)
				}
			})
		}
	}
	serve(grpcServer.Serve, doors.grpc)
	serve(d.clients.serve, doors.websocket)
	if relayed != nil {
		serving.Go(func() { _ = grpcServer.Serve(relayed.door.grpc) }) // ends with the server
		relayed.begin(failed)
	}
	doors.tell(d.opts.OnListen)
	left := doors.serveStdio(d.clients, &serving)
	if relayed != nil {
		left = nil // others can come
	}
	probing, probed := context.WithCancelCause(ctx)
	serving.Go(func() { d.tellSandboxes(probing) })
	select {
	case <-ctx.Done():
	case err = <-failed:
	case <-left:
		now = ended(errNobodyLeft)
	}
	probed(errStopping)
	healthServer.Shutdown()
	reflections.end()
	d.clients.refuse()
	d.drain(now)
	// Owners are told how their processes ended before their streams are.
	_ = d.processesEnded() // Close returns it, too
	healthServer.endWatches()
	d.server.EndWatches()
	var clientsErr error
	disconnected := begin(func() { clientsErr = d.clients.stop() })
	stopErr := stopServer(grpcServer, flushTimeout, handlerTimeout)
	<-disconnected
	stopErr = errors.Join(stopErr, clientsErr)
	if relayed != nil {
		stopErr = errors.Join(stopErr, relayed.close())
	}
	if stopErr != nil {
		return errors.Join(err, stopErr, d.Close()) // the listeners are closed, and those who serve them wait for handlers
	}
	if relayed != nil {
		relayed.door.wait()
	}
	reflections.wait()
	serving.Wait()
	return errors.Join(err, d.Close())
}

// errNobodyLeft is why there is nothing to wait for.
var errNobodyLeft = errors.New("the only client has left")

// ended returns a context that is over.
func ended(cause error) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	return ctx
}

// drain lets processes finish within the shutdown grace, unless now ends first, and
// then owners that have lost their connection return for the end of theirs.
func (d *Daemon) drain(now context.Context) {
	d.sessions.Drain()
	if n := d.sessions.Running(); n > 0 && d.opts.OnDrain != nil && now.Err() == nil {
		d.opts.OnDrain(n)
	}
	grace, cancel := context.WithTimeoutCause(now, time.Duration(d.cfg.ShutdownGrace), errors.New("the shutdown grace is over"))
	defer cancel()
	err := d.sessions.WaitClosed(grace)
	if err == nil {
		returned, cancel := context.WithTimeoutCause(grace, returnTimeout, errNotReturned)
		defer cancel()
		err = d.sessions.WaitIdle(returned)
	}
	if left := d.sessions.Running(); err != nil && left > 0 {
		d.opts.Logger.Info("terminating the processes that are left", "processes", left, "reason", err.Error())
	}
}
