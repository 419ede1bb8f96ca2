package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/secretfile"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
	"github.com/execwire/execwire/relay/executor"
)

// remote is the daemon as an executor of a relay.
type remote struct {
	door    *relayDoor
	options executor.Options
	end     context.CancelCauseFunc
	ended   <-chan struct{}
}

// openRemote returns what is reached through the relay, and nil if the daemon is
// not. It has to be closed.
func (d *Daemon) openRemote() (*remote, error) {
	if !d.cfg.HasRemote() {
		return nil, nil
	}
	trust, err := remoteTLS(d.cfg)
	if err != nil {
		return nil, err
	}
	name := d.cfg.ExecutorName
	if name == "" {
		name, _ = os.Hostname() // none is as good
	}
	door, err := newRelayDoor(d.cfg, d.clients, d.opts.Logger)
	if err != nil {
		return nil, err
	}
	return &remote{door: door, options: executor.Options{
		BaseURL: d.cfg.RemoteURL, ExecutorID: d.cfg.ExecutorID, Credentials: d.opts.RemoteCredentials, TLS: trust,
		Name: name, Version: d.opts.Version, Labels: d.cfg.Labels(), Streams: int(d.cfg.RelayStreams),
		Serve: func(ctx context.Context, websocket *wsconn.Conn) error { return door.endpoint.Run(ctx, websocket) },
		// The frames of the rendezvous are no larger than the defaults, whatever
		// clients of listeners may send.
		Websocket: wsconn.Options{DeadAfter: time.Duration(d.cfg.KeepaliveTimeout)},
		Logger:    d.opts.Logger,
	}}, nil
}

// withoutSecrets is an environment without what is shown to a registry.
func withoutSecrets(environ []string) []string {
	secrets := executor.SecretVariables()
	return slices.DeleteFunc(slices.Clone(environ), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(secrets, name)
	})
}

// remoteTLS is what is trusted where the registry and the rendezvous are.
func remoteTLS(cfg config.Config) (*tls.Config, error) {
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.RemoteCA == "" {
		return trust, nil
	}
	authorities, err := secretfile.Public(cfg.RemoteCA)
	if err != nil {
		return nil, &config.Error{Setting: "remote_ca_file", Problem: "cannot be used: " + err.Error()}
	}
	trust.RootCAs = x509.NewCertPool()
	if !trust.RootCAs.AppendCertsFromPEM(authorities) {
		return nil, &config.Error{Setting: "remote_ca_file", Problem: "holds no certificate in PEM"}
	}
	return trust, nil
}

// begin connects to the relay until close, and tells failed why that cannot go on.
func (r *remote) begin(failed chan<- error) {
	ctx, end := context.WithCancelCause(context.Background())
	r.end = end
	r.door.serving.Go(r.door.accept)
	r.ended = begin(func() {
		if err := executor.Run(ctx, r.options); err != nil {
			failed <- &RemoteError{Err: err}
		}
	})
}

// close lets those who came through the relay receive what was sent to them last,
// tells them that the server goes away, and disconnects from it.
func (r *remote) close() error {
	flush, cancel := context.WithTimeoutCause(context.Background(), flushTimeout, errFlush)
	defer cancel()
	_ = r.door.endpoint.Flush(flush) // those who do not receive it are cut off
	err := r.door.endpoint.Close(relay.ReasonGoingAway)
	r.end(errStopping)
	<-r.ended
	return err
}

// RemoteError is why the daemon cannot be an executor of its relay, which trying
// again would not change.
type RemoteError struct {
	// Err is of package relay/executor.
	Err error
}

func (e *RemoteError) Error() string {
	return fmt.Sprintf("failed to be reached through the relay: %v", e.Err)
}

// Unwrap returns Err.
func (e *RemoteError) Unwrap() error { return e.Err }
