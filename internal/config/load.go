package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Error describes an invalid setting: which, where it was set, and how to fix it.
type Error struct {
	// Source is the file or environment variable; empty if not known.
	Source string
	// Line and Column are the place in the file, from 1; 0 if not known. Columns are bytes.
	Line, Column int
	// Setting is the setting's name; empty if the whole file is invalid.
	Setting string
	// Problem is what is wrong; it follows the name in the message.
	Problem string
	// Fix is how to fix it; may be empty.
	Fix string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Source == "" {
		return "configuration: " + e.text()
	}
	return "configuration " + e.Finding()
}

// Finding returns the error as compilers print them, FILE:LINE:COLUMN: TEXT.
func (e *Error) Finding() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s:%d:%d: %s", e.Source, e.Line, e.Column, e.text())
	}
	return e.Source + ": " + e.text()
}

func (e *Error) text() string {
	var b strings.Builder
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
	cfg, _, err := LoadWithSources(path, environ, over...)
	return cfg, err
}

// LoadWithSources is [Load], and returns which settings the file and the environment set,
// but for those that over changes.
func LoadWithSources(path string, environ []string, over ...func(*Config)) (Config, Sources, error) {
	cfg := Default()
	cfg.Listen = notListed
	sources, err := load(&cfg, path, environ, over)
	if err != nil {
		return Config{}, nil, err
	}
	cfg.listenUnlessSet()
	return cfg, sources, sources.locate(cfg.Validate())
}

// LoadHub is [LoadWithSources] for a hub.
func LoadHub(path string, environ []string, over ...func(*Hub)) (Hub, Sources, error) {
	cfg := DefaultHub()
	sources, err := load(&cfg, path, environ, over)
	if err != nil {
		return Hub{}, nil, err
	}
	return cfg, sources, sources.locate(cfg.Validate())
}

// load applies the settings of a file, if there is one, of the environment, and of over.
// It returns the sources of those that over does not change.
func load[C any](cfg *C, path string, environ []string, over []func(*C)) (Sources, error) {
	list := Values(cfg)
	var f file
	if path != "" {
		var err error
		if f, err = readFile(path); err != nil {
			return nil, err
		}
		if problems := f.apply(list); len(problems) > 0 {
			return nil, problems[0]
		}
	}
	if err := loadEnvironment(list, environ); err != nil {
		return nil, err
	}
	for _, v := range unknownVariables(list, environ) {
		if v.misspelled {
			return nil, &Error{Source: v.name, Problem: "names no setting", Fix: "did you mean " + v.nearest + "? " + list[0].documents}
		}
	}
	sources := f.sources(list)
	sources.addEnvironment(list, environ)
	before := *cfg
	for _, change := range over {
		change(cfg)
	}
	for i, s := range Values(&before) {
		if !reflect.DeepEqual(s.Value(), list[i].Value()) {
			delete(sources, s.Name)
		}
	}
	return sources, nil
}

func setFromTOML(s Setting, value any) error {
	switch value := value.(type) {
	case string:
		return s.set(value)
	case int64:
		return s.set(strconv.FormatInt(value, 10))
	case float64:
		if s.Unit == "duration" || s.Unit == "ratio" {
			return s.set(strconv.FormatFloat(value, 'f', -1, 64))
		}
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
	if s.Secret {
		return fmt.Errorf("has a value of another type; it is measured in %s", s.Unit)
	}
	return fmt.Errorf("cannot be %v; it is measured in %s", value, s.Unit)
}

// Override sets a setting of a *Config or *Hub to values that [Setting.Parse] returned. It
// panics for others.
func Override(configuration any, name string, values ...string) {
	list := Values(configuration)
	s := list[slices.IndexFunc(list, func(s Setting) bool { return s.Name == name })]
	if texts, ok := s.value.Addr().Interface().(*[]string); ok {
		*texts = values
		return
	}
	if err := s.set(values[0]); err != nil {
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
