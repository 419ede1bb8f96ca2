package daemon

import (
	"context"
	"log/slog"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/syslimit"
)

// Reload reads the configuration again by [Options.LoadConfig], and the files that settings
// name: the table of principals, tokens, keys and certificates. It applies what can change
// while the daemon runs, and logs and returns all settings that differ; those without
// Reload need a new daemon. No process and no connection ends. If anything is invalid it
// changes nothing and returns the error. Without LoadConfig the settings stay.
// An audit log that was renamed is opened again in any case.
func (d *Daemon) Reload(context.Context) ([]ConfigChange, error) {
	changes, err := d.reload()
	return logReload(d.opts.Logger, changes, err)
}

// reload is Reload without the log.
func (d *Daemon) reload() ([]ConfigChange, error) {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	if err := reopenAudit(d.audit); err != nil {
		return nil, err
	}
	next, changes, err := reloaded(d.settings(), d.opts.LoadConfig, d.prepare)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.cfg = next
	d.mu.Unlock()
	return changes, nil
}

// reloaded loads a configuration and puts in use what of it can replace the current one. It
// returns the configuration in use and all differences.
func reloaded(current config.Config, load func() (config.Config, error), prepare func(config.Config) (apply func(), err error)) (config.Config, []ConfigChange, error) {
	wanted := current
	if load != nil {
		var err error
		if wanted, err = load(); err != nil {
			return current, nil, err
		}
	}
	changes := config.Changes(&current, &wanted)
	next := current
	config.Apply(&next, &wanted)
	apply, err := prepare(next)
	if err != nil {
		return current, nil, err
	}
	apply()
	return next, changes, nil
}

// logReload logs the result of a reload and returns it.
func logReload(logger *slog.Logger, changes []ConfigChange, err error) ([]ConfigChange, error) {
	if err != nil {
		logger.Error("failed to reload the configuration; nothing has changed", "error", err)
		return nil, err
	}
	config.LogChanges(logger, changes)
	return changes, nil
}

// prepare reads and checks everything that a configuration needs. apply puts it in use.
// reloading is held.
func (d *Daemon) prepare(cfg config.Config) (apply func(), err error) {
	// What cannot change may contradict what can.
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	authenticate, err := d.authenticator.prepare(cfg)
	if err != nil {
		return nil, err
	}
	identify, err := d.listeners.prepareTLS(d.opener(cfg))
	if err != nil {
		return nil, err
	}
	portOptions, err := portOptions(cfg, d.rules, d.required)
	if err != nil {
		return nil, err
	}
	cfg.RetainedTotal = config.Bytes(retainedTotal(cfg, syslimit.System{}))
	return func() {
		authenticate()
		identify()
		d.listeners.setConnections(int(cfg.Connections))
		d.ports.SetOptions(portOptions)
		if d.http != nil {
			d.http.SetOptions(httpOptions(cfg, d.rules))
		}
		d.files.SetLimits(int64(cfg.OutputFile), int64(cfg.OutputFileTotal))
		d.sessions.SetConfig(d.history.hook(sessionConfig(cfg, d.opts, d.audit)))
		d.server.SetLimits(limits(cfg))
		d.clients.configure(cfg)
	}, nil
}

// settings returns the configuration as it was given, or reloaded.
func (d *Daemon) settings() config.Config {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cfg
}
