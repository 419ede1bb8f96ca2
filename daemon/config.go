package daemon

import "github.com/execwire/execwire/internal/config"

// Config is every setting of a daemon: docs/configuration.md lists them by the
// names that they have in files and in the environment. The zero value is not
// usable: begin with [DefaultConfig] or [LoadConfig]. It is plain data and safe to
// copy.
type Config = config.Config

// Bytes is a setting in bytes, Count one in pieces, and Duration one of time.
type (
	// Bytes is a number of bytes.
	Bytes = config.Bytes
	// Count is a number of things.
	Count = config.Count
	// Duration is a time, in the unit of time.Duration.
	Duration = config.Duration
)

// ConfigError says which setting is wrong, where it came from, and what to do.
type ConfigError = config.Error

// DefaultConfig returns the settings of a daemon of which nothing is said.
func DefaultConfig() Config { return config.Default() }

// LoadConfig returns the defaults, with the settings of the TOML file at path and
// then those of the environment laid over them, in the form of os.Environ. An empty
// path reads no file, and nil no environment. The error is a [*ConfigError].
func LoadConfig(path string, environ []string) (Config, error) { return config.Load(path, environ) }
