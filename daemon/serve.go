package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/listen"
)

// Serve opens the configured listeners and serves until ctx ends. Then it
// drains: health answers NOT_SERVING, nothing new is started, processes that
// run may finish within the shutdown grace and are terminated after it, their
// owners are told how they ended, and Serve returns nil. A second context, now,
// cuts the grace short. If a listener cannot be opened nothing is served and the
// error says why.
func (d *Daemon) Serve(ctx, now context.Context) error {
	listeners, err := d.openListeners(ctx)
	if err != nil {
		return err
	}
	grpcServer, healthServer := d.newGRPCServer()
	var serving sync.WaitGroup
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		serving.Go(func() {
			if err := grpcServer.Serve(l); err != nil {
				failed <- fmt.Errorf("failed to serve %s: %w", l.URL(), err)
			}
		})
		if d.opts.OnListen != nil {
			d.opts.OnListen(l.URL().String())
		}
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	healthServer.Shutdown()
	d.drain(now)
	// Owners are told how their processes ended before their streams are.
	_ = d.processesEnded() // Close returns it, too
	healthServer.endWatches()
	if stopErr := stopServer(grpcServer, flushTimeout, handlerTimeout); stopErr != nil {
		return errors.Join(err, stopErr, d.Close()) // the listeners are closed, and those who serve them wait for handlers
	}
	serving.Wait()
	return errors.Join(err, d.Close())
}

// openListeners opens all listeners or none.
func (d *Daemon) openListeners(ctx context.Context) (list []listen.Listener, err error) {
	defer func() {
		if err != nil {
			for _, l := range list {
				_ = l.Close()
			}
		}
	}()
	locks := listen.Locks{
		Authenticated: d.doorkeeper.authenticator.HasTable(),
		Unadmitted:    unadmittedHeaders * int(d.cfg.HeaderList),
		Connections:   int(d.cfg.Connections),
		Full:          d.tellFull(),
	}
	for _, raw := range d.cfg.Listen {
		url, err := listen.Parse(raw)
		if err != nil {
			return list, err
		}
		switch url.Scheme {
		case listen.SchemeOff:
			continue
		case listen.SchemeWS, listen.SchemeWSS, listen.SchemeStdio:
			return list, fmt.Errorf("failed to listen on %s: nothing answers JSON-RPC yet", url)
		}
		if url.Scheme == listen.SchemeGRPCS && locks.TLS == nil && d.cfg.TLSCertificate != "" && d.cfg.TLSKey != "" {
			if locks.TLS, err = d.loadTLS(); err != nil {
				return list, fmt.Errorf("failed to listen on %s: %w", url, err)
			}
		}
		l, err := listen.Listen(ctx, url, locks)
		if err != nil {
			return list, err
		}
		list = append(list, l)
	}
	return list, nil
}

// fullInterval is how often the log tells of connections that had no place.
const fullInterval = time.Minute

// tellFull returns what has the log tell that a door was full, not more often
// than is of use.
func (d *Daemon) tellFull() func(listen.URL) {
	var mu sync.Mutex
	told := make(map[listen.URL]time.Time)
	return func(u listen.URL) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(told[u]) < fullInterval {
			return
		}
		told[u] = time.Now()
		d.opts.Logger.Warn("a listener has as many connections as it may have, and closed one; more of them are not logged for a while",
			"listener", u.String(), "connections_per_listener", int(d.cfg.Connections))
	}
}

// loadTLS reads what doors with TLS are locked with.
func (d *Daemon) loadTLS() (*listen.TLS, error) {
	if d.cfg.TLSClientCA == "" && d.doorkeeper.authenticator.WantsCertificates() {
		d.opts.Logger.Warn("principals are listed by certificates, and none is asked for: set tls_client_ca_file")
	}
	files := listen.TLSFiles{Certificate: d.cfg.TLSCertificate, Key: d.cfg.TLSKey, ClientCA: d.cfg.TLSClientCA}
	return listen.LoadTLS(files, func(err error) {
		d.opts.Logger.Error("the keys for TLS cannot be read again; the old ones stay in use", "error", err)
	})
}

// drain lets processes finish within the shutdown grace, unless now ends first.
func (d *Daemon) drain(now context.Context) {
	d.sessions.Drain()
	if n := d.sessions.Active(); n > 0 && d.opts.OnDrain != nil && now.Err() == nil {
		d.opts.OnDrain(n)
	}
	grace, cancel := context.WithTimeoutCause(now, time.Duration(d.cfg.ShutdownGrace), errors.New("the shutdown grace is over"))
	defer cancel()
	if err := d.sessions.WaitIdle(grace); err != nil {
		d.opts.Logger.Info("terminating the processes that are left", "processes", d.sessions.Active(), "reason", err.Error())
	}
}
