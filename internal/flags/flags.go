// Package flags has the flags that commands share: those of logs, and those that override
// settings.
package flags

import (
	"io"
	"log/slog"
	"maps"
	"regexp"
	"slices"

	"github.com/spf13/pflag"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/observe"
)

// Log are the flags of a command that writes a log.
type Log struct {
	format, level string
	lines         int
}

// AddLog adds --log-format and --log-level.
func AddLog(f *pflag.FlagSet) *Log {
	l := &Log{lines: observe.DefaultLines}
	f.StringVar(&l.format, "log-format", "text", "the `format` of the log: text or json")
	f.StringVar(&l.level, "log-level", "info", "the lowest `level` in the log: debug, info, warn or error")
	return l
}

// AddServerLog adds --log-lines too.
func AddServerLog(f *pflag.FlagSet) *Log {
	l := AddLog(f)
	f.IntVar(&l.lines, "log-lines", l.lines, "the `number` of log lines of one kind in 10s; further ones are only counted; 0 is unlimited")
	return l
}

// Logger returns a logger as the flags select it.
func (l *Log) Logger(w io.Writer) (*slog.Logger, error) {
	return observe.NewLogger(w, l.format, l.level, l.lines)
}

// Overrides maps flags to the settings that they override. A flag of a boolean type is for
// a setting that is on or off, and one of type uint32 for a duration, in seconds.
type Overrides map[string]string

// Apply sets the settings of a [*config.Config] or [*config.Hub] whose flags were set.
func (o Overrides) Apply(f *pflag.FlagSet, configuration any) {
	for name, setting := range o {
		if !f.Changed(name) {
			continue
		}
		value := f.Lookup(name).Value
		if list, ok := value.(pflag.SliceValue); ok {
			config.Override(configuration, setting, list.GetSlice()...)
			continue
		}
		text := value.String()
		switch value.Type() {
		case "bool":
			text = map[string]string{"true": "on", "false": "off"}[text]
		case "uint32":
			text += "s"
		}
		config.Override(configuration, setting, text)
	}
}

// Flag returns the flag for a setting, with its dashes, if it was set.
func (o Overrides) Flag(f *pflag.FlagSet, setting string) (flag string, isSet bool) {
	for name, overridden := range o {
		if overridden == setting && f.Changed(name) {
			return "--" + name, true
		}
	}
	return "", false
}

// Rename replaces the names of settings in a text by their flags, if one of these was
// set; else it returns false.
func (o Overrides) Rename(f *pflag.FlagSet, text string) (string, bool) {
	if !slices.ContainsFunc(slices.Collect(maps.Keys(o)), f.Changed) {
		return text, false
	}
	for flag, setting := range o {
		text = regexp.MustCompile(`\b`+setting+`\b`).ReplaceAllString(text, "--"+flag)
	}
	return text, true
}
