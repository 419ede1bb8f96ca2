package daemon

import (
	"context"

	"github.com/execwire/execwire/internal/config"
)

// Reload reads the configuration again by [Options.LoadConfig] and applies what can change
// while the daemon runs. It returns all settings that differed, and logs them. If anything
// is invalid it changes nothing and returns the error. Without LoadConfig the settings stay.
// An audit log that was renamed is opened again in any case.
func (d *Daemon) Reload(context.Context) ([]ConfigChange, error) {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	if err := d.reopenAudit(); err != nil {
		return nil, err
	}
	if d.opts.LoadConfig == nil {
		return nil, nil
	}
	cfg, err := d.opts.LoadConfig()
	if err != nil {
		return nil, err
	}
	changes := config.Changes(&d.configured, &cfg)
	for _, c := range changes {
		d.opts.Logger.Warn("a setting needs a restart", "setting", c.Setting, "old", c.Old, "new", c.New)
	}
	return changes, nil
}
