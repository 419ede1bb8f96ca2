package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// Error says which setting is wrong, where it came from, and what to do.
type Error struct {
	// Source is the file or environment variable; empty when it is not known.
	Source string
	// Setting is the setting's name; empty when the file as a whole is wrong.
	Setting string
	// Problem is what is wrong, to be read after the name.
	Problem string
	// Fix is what to do about it; may be empty.
	Fix string
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("configuration")
	if e.Source != "" {
		b.WriteString(" " + e.Source)
	}
	b.WriteString(": ")
	if e.Setting != "" {
		b.WriteString(e.Setting + " ")
	}
	b.WriteString(e.Problem)
	if e.Fix != "" {
		b.WriteString(": " + e.Fix)
	}
	return b.String()
}

// Load returns the defaults, with the settings of the TOML file at path and
// then those of the environment laid over them, and then what over changes. Where
// nothing of that says where to listen, a daemon with a relay does not listen. An
// empty path reads no file. environ is in the form of os.Environ. A setting that does not exist, cannot
// be read or is out of range is an [*Error], and so is an environment variable whose
// name is nearly that of a setting. Others with the prefix that name none are not
// looked at: [UnknownVariables] lists them.
func Load(path string, environ []string, over ...func(*Config)) (Config, error) {
	cfg := Default()
	cfg.Listen = notListed
	if path != "" {
		if err := loadFile(settings(&cfg), path, "docs/configuration.md lists them"); err != nil {
			return Config{}, err
		}
	}
	if err := loadEnvironment(settings(&cfg), environ); err != nil {
		return Config{}, err
	}
	if err := refuseMisspelled(UnknownVariables(environ), "docs/configuration.md lists them"); err != nil {
		return Config{}, err
	}
	for _, change := range over {
		change(&cfg)
	}
	cfg.listenUnlessSet()
	return cfg, cfg.Validate()
}

// loadFile sets what a file has; fix is what to do about a name that is none.
func loadFile(list []Setting, path, fix string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Error{Source: path, Problem: "does not exist", Fix: "create it, or leave --config out"}
	}
	if err != nil {
		return &Error{Source: path, Problem: "cannot be read: " + err.Error()}
	}
	var values map[string]any
	if err := toml.Unmarshal(text, &values); err != nil {
		return &Error{Source: path, Problem: "is not TOML: " + err.Error()}
	}
	for name, value := range values {
		i := slices.IndexFunc(list, func(s Setting) bool { return s.Name == name })
		if i < 0 {
			if near := slices.IndexFunc(list, func(s Setting) bool { return strings.EqualFold(s.Name, name) }); near >= 0 {
				fix = "write " + list[near].Name
			}
			return &Error{Source: path, Setting: name, Problem: "is not a setting", Fix: fix}
		}
		if err := setFromTOML(list[i], value); err != nil {
			return &Error{Source: path, Setting: name, Problem: err.Error()}
		}
	}
	return nil
}

func setFromTOML(s Setting, value any) error {
	switch value := value.(type) {
	case string:
		return s.set(value)
	case int64:
		if s.Unit == "duration" {
			return errors.New("needs a unit; write for example \"30s\"")
		}
		return s.set(strconv.FormatInt(value, 10))
	case []any:
		if list, ok := s.value.Addr().Interface().(*[]string); ok {
			*list = nil
			for _, item := range value {
				text, ok := item.(string)
				if !ok {
					return fmt.Errorf("holds %v, which is not text", item)
				}
				*list = append(*list, text)
			}
			return nil
		}
	}
	return fmt.Errorf("cannot be %v; it is measured in %s", value, s.Unit)
}

func loadEnvironment(list []Setting, environ []string) error {
	for _, s := range list {
		for _, entry := range environ {
			text, ok := strings.CutPrefix(entry, s.Environment()+"=")
			if !ok {
				continue
			}
			if err := s.set(text); err != nil {
				return &Error{Source: s.Environment(), Setting: s.Name, Problem: err.Error()}
			}
		}
	}
	return nil
}
