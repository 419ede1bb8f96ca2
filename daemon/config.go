package daemon

import "github.com/execwire/execwire/internal/config"

// Config is the configuration of a daemon: docs/configuration.md lists the settings
// by their names in files and in the environment. The zero value is not usable: begin
// with [DefaultConfig] or [LoadConfig]. It is plain data and safe to copy.
type Config = config.Config

// Types of settings.
type (
	// Bytes is a number of bytes.
	Bytes = config.Bytes
	// Count is a number of things.
	Count = config.Count
	// Duration is a time, in the unit of time.Duration.
	Duration = config.Duration
)

// ConfigError describes an invalid setting: which, where it was set, and how to fix
// it.
type ConfigError = config.Error

// DefaultConfig returns the default settings.
func DefaultConfig() Config { return config.Default() }

// ConfigChange is a setting with two values.
type ConfigChange = config.Change

// LoadConfig returns the defaults, overridden by the settings of the TOML file at
// path and then by those of the environment, in the form of os.Environ. An empty path
// reads no file, and nil no environment. The error is a [*ConfigError].
func LoadConfig(path string, environ []string) (Config, error) { return config.Load(path, environ) }
