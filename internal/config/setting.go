package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// What begins the name of every environment variable that sets something, of the
// daemon and of a hub.
const (
	EnvironmentPrefix    = "EXECWIRE_"
	HubEnvironmentPrefix = "EXECWIRE_HUB_"
)

// Setting describes one setting, for help texts and documents.
type Setting struct {
	// Name is the setting's name in a file.
	Name string
	// Default is its default as one would write it.
	Default string
	// Unit is what it is measured in.
	Unit string
	// Min and Max are its range, both allowed; empty for no bound.
	Min, Max string
	// Help says what it does, in one sentence or two.
	Help string

	value  reflect.Value
	prefix string // of environment variables
}

// Environment returns the name of the environment variable that sets it.
func (s Setting) Environment() string {
	return s.prefix + strings.ToUpper(s.Name)
}

// Settings lists every setting of the daemon in the order of the documentation.
func Settings() []Setting {
	return settings(new(Config))
}

func settings(c *Config) []Setting { return settingsOf(c, EnvironmentPrefix) }

// settingsOf lists those of a struct like Config.
func settingsOf(pointer any, prefix string) []Setting {
	v := reflect.ValueOf(pointer).Elem()
	list := make([]Setting, v.NumField())
	for i := range list {
		tag := v.Type().Field(i).Tag
		list[i] = Setting{
			Name:    tag.Get("name"),
			Default: tag.Get("default"),
			Unit:    tag.Get("unit"),
			Min:     tag.Get("min"),
			Max:     tag.Get("max"),
			Help:    tag.Get("help"),
			value:   v.Field(i),
			prefix:  prefix,
		}
	}
	return list
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
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration; write for example \"30s\"", text)
		}
		return int64(d), nil
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is not a whole number", text)
		}
		return n, nil
	}
}

// check reports a value outside the setting's range.
func (s Setting) check() error {
	if s.value.Kind() != reflect.Int64 {
		return nil
	}
	if low, err := s.parse(s.Min); err == nil && s.value.Int() < low {
		return &Error{Setting: s.Name, Problem: "is below " + s.Min, Fix: "the range is " + s.Min + " to " + s.Max}
	}
	if high, err := s.parse(s.Max); err == nil && s.value.Int() > high {
		return &Error{Setting: s.Name, Problem: "is above " + s.Max, Fix: "the range is " + s.Min + " to " + s.Max}
	}
	return nil
}

// ParseBytes reads a size: a number of bytes, or one with a unit KiB, MiB or
// GiB.
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

// String writes the size with the largest unit that divides it.
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
