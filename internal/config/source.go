package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// SourceKind is the kind of a [Source].
type SourceKind string

// The kinds of sources.
const (
	FromDefault     SourceKind = ""
	FromFile        SourceKind = "file"
	FromEnvironment SourceKind = "environment"
	FromFlag        SourceKind = "flag"
	// FromOther is for a value that follows from other settings.
	FromOther SourceKind = "implied"
)

// Source is where a setting was set. The zero value is the default of the setting.
type Source struct {
	// Kind is empty for the default.
	Kind SourceKind
	// Name is the path of the file, the name of the variable, or the flag.
	Name string
	// Line and Column are the place of the value in the file.
	Line, Column int
}

// String returns the source as text, "default" for that.
func (s Source) String() string {
	switch {
	case s.Kind == FromDefault:
		return "default"
	case s.Kind == FromOther:
		return "implied by another setting"
	case s.Line > 0:
		return fmt.Sprintf("%s:%d", s.Name, s.Line)
	case s.Kind == FromEnvironment:
		return "$" + s.Name
	}
	return s.Name
}

// Sources are the sources of settings by their names. Those that it lacks have defaults.
type Sources map[string]Source

func (f file) sources(list []Setting) Sources {
	sources := Sources{}
	for _, e := range f.entries {
		if slices.ContainsFunc(list, func(s Setting) bool { return s.Name == e.name }) {
			sources[e.name] = Source{Kind: FromFile, Name: f.path, Line: e.line, Column: e.valueColumn}
		}
	}
	return sources
}

func (s Sources) addEnvironment(list []Setting, environ []string) {
	for _, setting := range list {
		for _, entry := range environ {
			if strings.HasPrefix(entry, setting.Environment()+"=") {
				s[setting.Name] = Source{Kind: FromEnvironment, Name: setting.Environment()}
			}
		}
	}
}

// locate adds to an error the place where its setting was set, if it is known.
func (s Sources) locate(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		if source := s[e.Setting]; source.Kind != FromDefault {
			e.Source, e.Line, e.Column = source.Name, source.Line, source.Column
		}
	}
	return err
}
