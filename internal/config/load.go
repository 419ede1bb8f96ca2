package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// Error describes an invalid setting: which, where it was set, and how to fix it.
type Error struct {
	// Source is the file or environment variable; empty if not known.
	Source string
	// Setting is the setting's name; empty if the whole file is invalid.
	Setting string
	// Problem is what is wrong; it follows the name in the message.
	Problem string
	// Fix is how to fix it; may be empty.
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

// Load returns the defaults, overridden by the settings of the TOML file at path, by
// those of the environment, and then by over. If none of these sets listen, a daemon
// with a relay does not listen. An empty path reads no file. environ is in the form
// of os.Environ. A setting that does not exist, is malformed or out of range is an
// [*Error], and so is an environment variable whose name is nearly that of a setting.
// Other variables with the prefix are ignored: [WarnOfVariables] logs them.
func Load(path string, environ []string, over ...func(*Config)) (Config, error) {
	cfg := Default()
	cfg.Listen = notListed
	if err := load(settingsOf(&cfg), path, environ, "docs/configuration.md lists them"); err != nil {
		return Config{}, err
	}
	for _, change := range over {
		change(&cfg)
	}
	cfg.listenUnlessSet()
	return cfg, cfg.Validate()
}

// LoadHub is [Load] for a hub.
func LoadHub(path string, environ []string, over ...func(*Hub)) (Hub, error) {
	cfg := DefaultHub()
	if err := load(settingsOf(&cfg), path, environ, "docs/hub.md lists them"); err != nil {
		return Hub{}, err
	}
	for _, change := range over {
		change(&cfg)
	}
	return cfg, cfg.Validate()
}

// load applies the settings of a file, if there is one, and of the environment; fix is
// the advice for an unknown name.
func load(list []Setting, path string, environ []string, fix string) error {
	if path != "" {
		if err := loadFile(list, path, fix); err != nil {
			return err
		}
	}
	if err := loadEnvironment(list, environ); err != nil {
		return err
	}
	for _, v := range unknownVariables(list, environ) {
		if v.misspelled {
			return &Error{Source: v.name, Problem: "names no setting", Fix: "did you mean " + v.nearest + "? " + fix}
		}
	}
	return nil
}

// loadFile applies the settings of a file; fix is the advice for an unknown name.
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

// Override sets a setting of a *Config or *Hub to the value of a flag, which is one text
// unless the setting is a list. A relative path becomes absolute. It panics for a value
// that the setting cannot have, which the type of the flag has to exclude.
func Override(configuration any, name string, values ...string) {
	list := settingsOf(configuration)
	s := list[slices.IndexFunc(list, func(s Setting) bool { return s.Name == name })]
	if texts, ok := s.value.Addr().Interface().(*[]string); ok {
		*texts = values
		return
	}
	text := values[0]
	if s.Unit == "path" && text != "" {
		if absolute, err := filepath.Abs(text); err == nil {
			text = absolute
		}
	}
	if err := s.set(text); err != nil {
		panic("config: flag for " + name + ": " + err.Error())
	}
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
