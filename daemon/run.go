package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/execwire/execwire/relay/executor"
)

// Run creates a daemon and serves until ctx ends, as [New] and [Daemon.Serve] do.
// Processes that run when ctx ends have the shutdown grace of the configuration.
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

// RemoteExecutor describes an executor and its registry.
type RemoteExecutor struct {
	// URL is the registry, https://HOST, or http://HOST:PORT on this host: a hub, or
	// another server of this protocol. Required.
	URL string
	// ID identifies the executor to clients. Required.
	ID string
	// Name is shown to people; empty is the name of this host.
	Name string
	// Labels describe the executor. Nil is none.
	Labels map[string]string
	// CA is a PEM file with the trusted certificate authorities; empty trusts those
	// of the system.
	CA string
	// Credentials are the credentials for the registry. Nil uses
	// [executor.FindCredentials] with the remote_token_file and agent_identity of the
	// configuration; credentials in the environment are hidden from processes.
	Credentials executor.Credentials
	// Listen are additional listeners, as in [Config]. Nil is none.
	Listen []string
}

// RunExecutor runs a daemon that is reached through a relay, as [Run] does, with
// settings that do not configure one. It returns a [*RemoteError] when the registry
// refuses the executor, or another program takes its place.
func RunExecutor(ctx context.Context, remote RemoteExecutor, cfg Config, options Options) error {
	if err := remote.applyTo(&cfg, &options); err != nil {
		return err
	}
	return Run(ctx, cfg, options)
}

// applyTo configures the executor in cfg and options.
func (r RemoteExecutor) applyTo(cfg *Config, options *Options) error {
	cfg.Listen = r.Listen
	cfg.RemoteURL, cfg.ExecutorID, cfg.ExecutorName, cfg.RemoteCA = r.URL, r.ID, r.Name, r.CA
	cfg.ExecutorLabels = nil
	for key, value := range r.Labels {
		cfg.ExecutorLabels = append(cfg.ExecutorLabels, key+"="+value)
	}
	slices.Sort(cfg.ExecutorLabels)
	if r.URL == "" {
		return &ConfigError{Setting: "remote", Problem: "is needed by an executor", Fix: "write https://HOST or http://HOST:PORT"}
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
