package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/execwire/execwire/relay/executor"
)

// Run makes a daemon and serves until ctx ends, as [New] and [Daemon.Serve] do, and
// leaves nothing behind. Processes that run when ctx ends have the shutdown grace of
// the configuration.
func Run(ctx context.Context, cfg Config, options Options) error {
	d, err := New(cfg, options)
	if err != nil {
		return err
	}
	if err := d.Serve(ctx, context.WithoutCancel(ctx)); err != nil {
		return errors.Join(err, d.Close())
	}
	return nil
}

// RemoteExecutor says by which registry a daemon is found, and as what.
type RemoteExecutor struct {
	// URL is that of the registry, https://HOST, or http://HOST:PORT on this host:
	// of a hub, or of another one of this protocol. It is needed.
	URL string
	// ID is what clients find the daemon by. It is needed.
	ID string
	// Name is what people are shown beside that; empty is the name of this host.
	Name string
	// Labels describe the daemon there. nil is none.
	Labels map[string]string
	// CA is a file with the authorities to trust there, as PEM; empty trusts those
	// that this machine does.
	CA string
	// Credentials are shown to the registry. nil looks for them as
	// [executor.FindCredentials] does, with the remote_token_file and agent_identity
	// of the configuration; processes do not get those that are in the environment.
	Credentials executor.Credentials
	// Listen is where clients are accepted beside, as in [Config]. nil is nowhere.
	Listen []string
}

// RunExecutor runs a daemon that is reached through a relay, as [Run] does, with
// settings that say nothing of that. It ends by itself with a [*RemoteError] when the registry refuses it,
// or another program takes its place.
func RunExecutor(ctx context.Context, remote RemoteExecutor, cfg Config, options Options) error {
	if err := remote.lay(&cfg, &options); err != nil {
		return err
	}
	return Run(ctx, cfg, options)
}

// lay makes the daemon of cfg and options that of the registry.
func (r RemoteExecutor) lay(cfg *Config, options *Options) error {
	cfg.Listen = r.Listen
	cfg.RemoteURL, cfg.ExecutorID, cfg.ExecutorName, cfg.RemoteCA = r.URL, r.ID, r.Name, r.CA
	cfg.ExecutorLabels = nil
	for key, value := range r.Labels {
		cfg.ExecutorLabels = append(cfg.ExecutorLabels, key+"="+value)
	}
	slices.Sort(cfg.ExecutorLabels)
	if r.URL == "" {
		return &ConfigError{Setting: "remote_url", Problem: "is needed by an executor", Fix: "write https://HOST or http://HOST:PORT"}
	}
	if err := cfg.Validate(); err != nil {
		return err
	}
	if options.RemoteCredentials = r.Credentials; r.Credentials != nil {
		return nil
	}
	found, err := executor.FindCredentials(executor.Sources{
		Registry: r.URL, TokenFile: cfg.RemoteTokenFile, AgentIdentity: cfg.HasAgentIdentity(),
	})
	if err != nil {
		return fmt.Errorf("failed to find credentials for the registry: %w", err)
	}
	options.RemoteCredentials = found
	return nil
}
