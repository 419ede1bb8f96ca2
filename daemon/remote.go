package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/execwire/execwire/gateway"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/secretfile"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
	"github.com/execwire/execwire/relay/executor"
)

// remote is the daemon as an executor behind a relay.
type remote struct {
	server  *relayServer
	options executor.Options
	end     context.CancelCauseFunc
	ended   <-chan struct{}
}

// openRemote returns the executor, or nil if none is configured. It must be closed. Its
// gRPC clients are delivered to grpc.
func (d *Daemon) openRemote(grpc *listen.Queue) (*remote, error) {
	cfg := d.settings()
	if !cfg.HasRemote() {
		return nil, nil
	}
	tlsConfig, err := remoteTLS(cfg)
	if err != nil {
		return nil, err
	}
	name := cfg.ExecutorName
	if name == "" {
		name, _ = os.Hostname() // an empty name is accepted
	}
	served := newRelayServer(cfg, grpc, d.clients, d.opts.Logger)
	d.metrics.relay.Store(served.endpoint)
	return &remote{server: served, options: executor.Options{
		BaseURL: cfg.RemoteURL, ExecutorID: cfg.ExecutorID, Credentials: d.opts.RemoteCredentials, TLS: tlsConfig,
		Name: name, Version: d.opts.Version, Labels: cfg.Labels(), Streams: int(cfg.RelayStreams),
		Serve: func(ctx context.Context, websocket *wsconn.Conn) error { return served.endpoint.Run(ctx, websocket) },
		// Frames of the rendezvous are within the default limits, whatever the limits
		// of the listeners are.
		Websocket: wsconn.Options{DeadAfter: time.Duration(cfg.KeepaliveTimeout)},
		Logger:    d.opts.Logger,
	}}, nil
}

// withoutSecrets returns an environment without the credentials for a registry.
func withoutSecrets(environ []string) []string {
	secrets := executor.SecretVariables()
	return slices.DeleteFunc(slices.Clone(environ), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(secrets, name)
	})
}

// remoteTLS returns the TLS configuration for the registry and the rendezvous.
func remoteTLS(cfg config.Config) (*tls.Config, error) {
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.RemoteCA == "" {
		return tlsConfig, nil
	}
	var err error
	if tlsConfig.RootCAs, err = secretfile.Authorities(cfg.RemoteCA); err != nil {
		return nil, &config.Error{Setting: "remote_tls_ca", Problem: "cannot be used: " + err.Error()}
	}
	return tlsConfig, nil
}

// begin connects to the relay until close; a fatal error is sent to failed.
func (r *remote) begin(failed chan<- error) {
	ctx, end := context.WithCancelCause(context.Background())
	r.end = end
	r.server.serving.Go(r.server.accept)
	r.ended = runAsync(func() {
		if err := executor.Run(ctx, r.options); err != nil {
			failed <- &RemoteError{Err: err}
		}
	})
}

// close flushes what was sent to clients, resets their streams because the server
// shuts down, and disconnects from the relay.
func (r *remote) close() error {
	flush, cancel := context.WithTimeoutCause(context.Background(), flushTimeout, errFlush)
	defer cancel()
	_ = r.server.endpoint.Flush(flush) // clients that do not receive it are disconnected
	err := r.server.endpoint.Close(relay.ReasonGoingAway)
	r.end(errStopping)
	<-r.ended
	return err
}

// lose resets the streams of clients and disconnects from the relay.
func (r *remote) lose() error {
	err := r.server.endpoint.Close(relay.ReasonGoingAway)
	r.end(gateway.ErrReplaced)
	<-r.ended
	r.server.wait()
	return err
}

// RemoteError is a fatal error of the daemon as an executor; trying again would not
// help.
type RemoteError struct {
	// Err is an error of package relay/executor.
	Err error
}

func (e *RemoteError) Error() string {
	return fmt.Sprintf("failed to be reached through the relay: %v", e.Err)
}

// Unwrap returns Err.
func (e *RemoteError) Unwrap() error { return e.Err }
