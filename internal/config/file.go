package config

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/execwire/execwire/internal/similar"
)

// file is a parsed file with settings.
type file struct {
	path    string
	entries []entry // in their order
}

// entry is a name of a file, or of a table in it, with its value.
type entry struct {
	name    string
	value   any
	members []entry // of a table
	// line and column are the place of the name, and valueColumn that of the value.
	line, column, valueColumn int
}

// readFile parses the TOML file at a path, which may have names that are no settings.
func readFile(path string) (file, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return file{}, &Error{Source: path, Problem: "does not exist", Fix: "create it, or leave --config out"}
	}
	if err != nil {
		return file{}, &Error{Source: path, Problem: "cannot be read: " + err.Error()}
	}
	return parseFile(path, text)
}

func parseFile(path string, text []byte) (file, error) {
	var values map[string]any
	var primitives map[string]toml.Primitive
	err := toml.Unmarshal(text, &values)
	var metadata toml.MetaData
	if err == nil {
		metadata, err = toml.Decode(string(text), &primitives)
	}
	var wrong toml.ParseError
	switch {
	case errors.As(err, &wrong):
		line, column := place(string(text), wrong.Position.Start)
		return file{}, &Error{Source: path, Line: line, Column: column, Problem: "is not TOML: " + wrong.Message}
	case err != nil:
		return file{}, &Error{Source: path, Problem: "is not TOML: " + err.Error()}
	}
	return file{path: path, entries: entriesOf(string(text), metadata, values, primitives)}, nil
}

// entriesOf returns the entries of a table of a text.
func entriesOf(text string, metadata toml.MetaData, values map[string]any, primitives map[string]toml.Primitive) (list []entry) {
	for name, value := range values {
		start := valueStart(metadata, primitives[name])
		for start > 0 && strings.IndexByte("\"'[", text[start-1]) >= 0 {
			start-- // the place is behind the sign with which the value begins
		}
		e := entry{name: name, value: value}
		e.line, e.valueColumn = place(text, start)
		// A value begins in the line of its name.
		line := text[start-(e.valueColumn-1):]
		e.column = len(line) - len(strings.TrimLeft(line, " \t")) + 1
		if table, ok := value.(map[string]any); ok {
			var members map[string]toml.Primitive
			_ = metadata.PrimitiveDecode(primitives[name], &members) // a table has members
			e.members = entriesOf(text, metadata, table, members)
		}
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.name, b.name))
	})
	return list
}

// errPlace makes the decoder return the place of a value, which it has only in errors.
type errPlace struct{}

func (errPlace) Error() string           { return "" }
func (errPlace) UnmarshalTOML(any) error { return errPlace{} }

// valueStart returns where a value begins in the text: that of a table where its name
// does, or its first value if it has no line of its own, as a in a.b = 1.
func valueStart(metadata toml.MetaData, value toml.Primitive) int {
	var at toml.ParseError
	var members map[string]toml.Primitive
	if errors.As(metadata.PrimitiveDecode(value, &errPlace{}), &at) && at.Position.Line > 0 || metadata.PrimitiveDecode(value, &members) != nil {
		return at.Position.Start
	}
	first := -1
	for _, member := range members {
		if start := valueStart(metadata, member); first < 0 || start < first {
			first = start
		}
	}
	return max(first, 0)
}

// place returns the line and column of an offset.
func place(text string, offset int) (line, column int) {
	before := text[:min(offset, len(text))]
	return strings.Count(before, "\n") + 1, len(before) - strings.LastIndexByte(before, '\n')
}

// apply sets the settings of the file, and returns what is wrong with it, in its order.
func (f file) apply(list []Setting) (problems []*Error) {
	for _, e := range f.entries {
		i := slices.IndexFunc(list, func(s Setting) bool { return s.Name == e.name })
		if i < 0 {
			problems = append(problems, &Error{Source: f.path, Line: e.line, Column: e.column, Setting: e.name, Problem: "is not a setting", Fix: suggest(list, e.name)})
			continue
		}
		if err := setFromTOML(list[i], e.value); err != nil {
			problems = append(problems, &Error{Source: f.path, Line: e.line, Column: e.valueColumn, Setting: e.name, Problem: err.Error()})
		}
	}
	return problems
}

// suggest returns advice for a name that is not a setting.
func suggest(list []Setting, name string) string {
	nearest, _ := similar.Nearest(name, 0, settingNames(list))
	switch {
	case nearest == "":
		return list[0].documents
	case strings.EqualFold(nearest, name):
		return "write " + nearest
	}
	return "did you mean " + nearest + "? " + list[0].documents
}

func settingNames(list []Setting) []string {
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.Name
	}
	return names
}

// CheckFile returns everything that is wrong with a file for the daemon by itself, without
// environment and flags, in the order of the file: what is no TOML; else all names and
// values; else what contradicts another setting.
func CheckFile(path string) []*Error {
	cfg := Default()
	cfg.Listen = notListed
	return checkFile(&cfg, path, func() []error {
		cfg.listenUnlessSet()
		return cfg.contradictions()
	})
}

// CheckHubFile is [CheckFile] for a hub.
func CheckHubFile(path string) []*Error {
	cfg := DefaultHub()
	return checkFile(&cfg, path, cfg.contradictions)
}

func checkFile(cfg any, path string, contradictions func() []error) []*Error {
	file, err := readFile(path)
	if err != nil {
		return asErrors([]error{err})
	}
	list := Values(cfg)
	sources := file.sources(list)
	locate := func(found []error) (located []*Error) {
		for _, e := range asErrors(found) {
			e.Source = path
			_ = sources.locate(e)
			located = append(located, e)
		}
		return located
	}
	problems := append(file.apply(list), locate(checkSettings(list))...)
	if len(problems) == 0 {
		problems = locate(contradictions())
	}
	slices.SortStableFunc(problems, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
	return problems
}

func asErrors(list []error) (typed []*Error) {
	for _, err := range list {
		if e, ok := errors.AsType[*Error](err); ok {
			typed = append(typed, e)
		}
	}
	return typed
}
