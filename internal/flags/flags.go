// Package flags has the flags that commands share: those of logs, and those that override
// settings.
package flags

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"time"

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

// duration is the value of a flag for a duration, as [config.ParseDuration] parses it.
type duration time.Duration

// String formats it as [time.Duration] does, so that GetDuration of a flag set works.
func (d *duration) String() string { return time.Duration(*d).String() }

// Type is the type that pflag knows.
func (d *duration) Type() string { return "duration" }

// Set parses a value.
func (d *duration) Set(text string) error {
	parsed, err := config.ParseDuration(text)
	if err == nil {
		*d = duration(parsed)
	}
	return err
}

// Duration adds a flag for a duration, with a unit or in seconds.
func Duration(f *pflag.FlagSet, value *time.Duration, name string, otherwise time.Duration, usage string) {
	DurationP(f, value, name, "", otherwise, usage)
}

// DurationP is Duration with a short name.
func DurationP(f *pflag.FlagSet, value *time.Duration, name, short string, otherwise time.Duration, usage string) {
	*value = otherwise
	f.VarP((*duration)(value), name, short, usage)
	if otherwise == 0 {
		f.Lookup(name).DefValue = "" // the help does not show it: usage says what 0 is
	}
}

// Synonyms makes a set of flags accept other names of flags. They are neither in the help
// nor completed.
func Synonyms(f *pflag.FlagSet, nameOf map[string]string) {
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(cmp.Or(nameOf[name], name))
	})
}

// Hidden adds a hidden switch with a short form.
func Hidden(f *pflag.FlagSet, value *bool, name, short, usage string) {
	f.BoolVarP(value, name, short, false, usage)
	f.Lookup(name).Hidden = true
}

// AddSettings adds a flag for each setting, of its name with - for _. Those in usages are in
// help texts; the others are hidden there, and have the description of the setting. The
// value of a flag is checked like that of an environment variable, and may be repeated for
// a list. A duration may be a number of seconds.
func AddSettings(f *pflag.FlagSet, settings []config.Setting, usages map[string]string) {
	completes := len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "__complete") // of cobra: hidden ones are not completed
	for _, s := range settings {
		usage, isShown := usages[Name(s.Name)]
		if !isShown {
			usage = s.Help
		}
		flag := f.VarPF(&value{setting: s}, Name(s.Name), "", usage)
		flag.Hidden = !isShown && !completes
		if s.IsSwitch() {
			flag.NoOptDefVal = "true"
		}
	}
}

// Name returns the name of the flag for a setting.
func Name(setting string) string { return strings.ReplaceAll(setting, "_", "-") }

// IsSetting reports whether a flag is one of AddSettings.
func IsSetting(flag *pflag.Flag) bool {
	_, ok := flag.Value.(*value)
	return ok
}

// value is the value of a flag for a setting.
type value struct {
	setting config.Setting
	texts   []string
}

// String implements pflag.Value.
func (v *value) String() string { return strings.Join(v.texts, ",") }

// Type implements pflag.Value.
func (v *value) Type() string {
	if v.setting.IsSwitch() {
		return "bool"
	}
	return v.setting.Unit
}

// Set implements pflag.Value.
func (v *value) Set(text string) error {
	if v.setting.IsSwitch() {
		text = cmp.Or(map[string]string{"true": "on", "false": "off"}[text], text)
	}
	texts, err := v.setting.Parse(text)
	if err != nil {
		return err
	}
	if v.setting.IsList() {
		texts = append(v.texts, texts...)
	}
	v.texts = texts
	return nil
}

// Apply sets the settings of a [*config.Config] or [*config.Hub] whose flags were set.
func Apply(f *pflag.FlagSet, configuration any) {
	visit(f, func(flag *pflag.Flag, v *value) {
		if flag.Changed {
			config.Override(configuration, v.setting.Name, v.texts...)
		}
	})
}

func visit(f *pflag.FlagSet, do func(*pflag.Flag, *value)) {
	f.VisitAll(func(flag *pflag.Flag) {
		if v, ok := flag.Value.(*value); ok {
			do(flag, v)
		}
	})
}

// Flag returns the flag for a setting, with its dashes, if it was set.
func Flag(f *pflag.FlagSet, setting string) (flag string, isSet bool) {
	if found := f.Lookup(Name(setting)); found != nil && found.Changed && IsSetting(found) {
		return "--" + found.Name, true
	}
	return "", false
}

// Explain replaces the names of settings in an error of a configuration by their flags, if
// one was set of the settings that it names, or that begin with the same word as its own;
// else it returns false.
func Explain(f *pflag.FlagSet, err error) (text string, used bool) {
	group := ""
	if wrong, ok := errors.AsType[*config.Error](err); ok {
		group, _, _ = strings.Cut(wrong.Setting, "_")
	}
	text = err.Error()
	renamed := text
	visit(f, func(flag *pflag.Flag, v *value) {
		name, after := v.setting.Name, `($|\W)`
		if flag.Changed && strings.HasPrefix(name, group+"_") {
			used = true
		}
		if !flag.Changed && !strings.Contains(name, "_") {
			after = `($|:| is )` // otherwise it may be a word
		}
		named := regexp.MustCompile(`(^|[^\w./-])` + name + after)
		if named.MatchString(text) {
			used = used || flag.Changed
			renamed = named.ReplaceAllString(renamed, "${1}--"+flag.Name+"${2}")
		}
	})
	if !used {
		return text, false
	}
	return strings.TrimPrefix(renamed, "configuration: "), true
}
