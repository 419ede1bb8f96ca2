package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The prefixes of the environment variables of the daemon and of a hub.
const (
	EnvironmentPrefix    = "EXECWIRE_"
	HubEnvironmentPrefix = "EXECWIRE_HUB_"
)

// Setting describes a setting, for help texts and documents.
type Setting struct {
	// Name is the setting's name in a file.
	Name string
	// Default is the default in the notation of a file.
	Default string
	// Unit is the unit of the value.
	Unit string
	// Min and Max are the range, inclusive; empty for no limit.
	Min, Max string
	// Help describes the setting.
	Help string
	// Secret is set if the value is not to be printed.
	Secret bool
	// Reload is set if a running program can change to another value.
	Reload bool

	value       reflect.Value
	prefix      string // of environment variables
	documents   string // what lists the settings
	environment string // see Environment
	// choices are the allowed values, separated by commas; / is any absolute path. Empty
	// for any value.
	choices string
}

// Environment returns the name of its environment variable.
func (s Setting) Environment() string { return s.environment }

// Settings returns all settings of the daemon in the order of the documentation.
func Settings() []Setting {
	cfg := Default()
	return Values(&cfg)
}

// HubSettings returns all settings of a hub in the order of the documentation.
func HubSettings() []Setting {
	cfg := DefaultHub()
	return Values(&cfg)
}

// ClientSettings returns all settings of a [Context] in the order of the documentation.
func ClientSettings() []Setting { return Values(&Context{}) }

// Values returns the settings of a [*Config], [*Hub] or [*Context], in the order of the
// documentation.
func Values(configuration any) []Setting {
	described := describedSettings
	switch configuration.(type) {
	case *Hub:
		described = describedHubSettings
	case *Context:
		described = describedClientSettings
	}
	list := slices.Clone(described())
	v := reflect.ValueOf(configuration).Elem()
	for i := range list {
		list[i].value = v.Field(i)
	}
	return list
}

// Settings without values. They are described once, because both processes of a server do
// it before it listens.
var (
	describedSettings = sync.OnceValue(func() []Setting {
		return describe(reflect.TypeFor[Config](), EnvironmentPrefix, "execwire config example lists them")
	})
	describedHubSettings = sync.OnceValue(func() []Setting {
		return describe(reflect.TypeFor[Hub](), HubEnvironmentPrefix, "execwire-hub config example lists them")
	})

	describedClientSettings = sync.OnceValue(func() []Setting {
		return describe(reflect.TypeFor[Context](), EnvironmentPrefix, "execwire context --help has an example")
	})
)

// describe reads the tags of the fields of a type. documents says what lists the settings,
// also where the documents are not installed.
func describe(t reflect.Type, prefix, documents string) []Setting {
	list := make([]Setting, t.NumField())
	for i := range list {
		tag := t.Field(i).Tag
		name := tag.Get("name")
		list[i] = Setting{
			Name:        name,
			Default:     tag.Get("default"),
			Unit:        tag.Get("unit"),
			Min:         tag.Get("min"),
			Max:         tag.Get("max"),
			Help:        tag.Get("help"),
			Secret:      tag.Get("secret") != "",
			Reload:      tag.Get("reload") == "yes",
			prefix:      prefix,
			documents:   documents,
			environment: prefix + strings.ToUpper(name),
			choices:     tag.Get("choices"),
		}
	}
	return list
}

// setDefaults sets all settings to their defaults.
func setDefaults(list []Setting) {
	for _, s := range list {
		if err := s.set(s.Default); err != nil {
			panic("config: default of " + s.Name + ": " + err.Error())
		}
	}
}

// checkSettings returns the errors of settings by themselves.
func checkSettings(list []Setting) (problems []error) {
	for _, s := range list {
		if err := s.check(); err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

// firstError returns the first error of a list, or nil.
func firstError(problems []error) error {
	if len(problems) == 0 {
		return nil
	}
	return problems[0]
}

// IsSwitch reports whether the setting is on or off.
func (s Setting) IsSwitch() bool { return s.choices == "on,off" }

// IsList reports whether the setting has several values.
func (s Setting) IsList() bool { return s.value.Kind() == reflect.Slice }

// Parse returns the values that text in the notation of an environment variable has: one,
// or those of a list. A relative path becomes absolute. An error does not name the setting.
func (s Setting) Parse(text string) ([]string, error) {
	if s.IsList() {
		return splitList(text), nil
	}
	if s.Unit == "path" && text != "" {
		absolute, err := filepath.Abs(text)
		if err != nil {
			return nil, err
		}
		text = absolute
	}
	s.value = reflect.New(s.value.Type()).Elem()
	err := s.set(text)
	if err == nil {
		err = s.check()
	}
	if wrong, ok := errors.AsType[*Error](err); ok {
		err = errors.New(strings.TrimPrefix(wrong.text(), s.Name+" "))
	}
	return []string{text}, err
}

// set parses text as the setting's value.
func (s Setting) set(text string) error {
	if list, ok := s.value.Addr().Interface().(*[]string); ok {
		*list = splitList(text)
		return nil
	}
	if s.value.Kind() == reflect.String {
		s.value.SetString(text)
		return nil
	}
	n, err := s.parse(text)
	if err != nil {
		return err
	}
	s.value.SetInt(n)
	return nil
}

// parse reads text in the notation of the setting's type.
func (s Setting) parse(text string) (int64, error) {
	switch s.value.Interface().(type) {
	case Bytes:
		n, err := ParseBytes(text)
		return int64(n), err
	case Duration:
		d, err := ParseDuration(text)
		return int64(d), err
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is not a whole number", text)
		}
		return n, nil
	}
}

// check returns an error if the value is outside of its range or none of its choices.
func (s Setting) check() error {
	if s.value.Kind() != reflect.Int64 {
		return s.checkChoice()
	}
	if low, err := s.parse(s.Min); err == nil && s.value.Int() < low {
		return &Error{Setting: s.Name, Problem: "is below " + s.Min, Fix: "the range is " + s.Min + " to " + s.Max}
	}
	if high, err := s.parse(s.Max); err == nil && s.value.Int() > high {
		return &Error{Setting: s.Name, Problem: "is above " + s.Max, Fix: "the range is " + s.Min + " to " + s.Max}
	}
	return nil
}

func (s Setting) checkChoice() error {
	choices, text := strings.Split(s.choices, ","), s.value.String()
	if s.choices == "" || text == s.Default || slices.Contains(choices, text) {
		return nil
	}
	if last := len(choices) - 1; choices[last] == "/" {
		if filepath.IsAbs(text) {
			return nil
		}
		choices[last] = "an absolute path"
	}
	words := strings.Join(choices, ", ")
	if i := strings.LastIndex(words, ", "); i >= 0 {
		words = words[:i] + " or " + words[i+2:]
	}
	return invalid(s.Name, text, "write "+words)
}

// invalid returns an error for a value of a setting.
func invalid(setting, value, fix string) *Error {
	return &Error{Setting: setting, Problem: fmt.Sprintf("cannot be %q", value), Fix: fix}
}

// ParseBytes parses a size: a number of bytes, or one with a unit KiB, MiB or GiB.
func ParseBytes(text string) (Bytes, error) {
	digits, factor := text, int64(1)
	for unit, f := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if before, ok := strings.CutSuffix(text, unit); ok {
			digits, factor = strings.TrimSpace(before), f
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/factor {
		return 0, fmt.Errorf("%q is not a size; write for example 65536 or \"64KiB\"", text)
	}
	return Bytes(n * factor), nil
}

// String formats the size with the largest unit that divides it.
func (b Bytes) String() string {
	for _, u := range []struct {
		factor Bytes
		name   string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if b != 0 && b%u.factor == 0 {
			return strconv.FormatInt(int64(b/u.factor), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

func splitList(text string) []string {
	var list []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}
