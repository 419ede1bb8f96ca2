package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/BurntSushi/toml"

	"github.com/execwire/execwire/internal/similar"
)

// ContextVariable is the environment variable with the name of the context to use.
const ContextVariable = EnvironmentPrefix + "CONTEXT"

// Context is how a client reaches a server: the settings of commands that connect to one.
// A field's tags are its documentation. The zero value names no server. The struct is
// plain data and safe to copy.
type Context struct {
	// Server is the URL of the server.
	Server string `name:"server" json:"server,omitempty" unit:"text" help:"The URL of the server."`
	// Hub is the URL of a hub.
	Hub string `name:"hub" json:"hub,omitempty" unit:"text" help:"Or the URL of a hub, to reach one of its executors."`
	// Executor is the id of an executor of Hub.
	Executor string `name:"executor" json:"executor,omitempty" unit:"text" help:"The id of that executor."`
	// TokenFile has the token.
	TokenFile string `name:"token_file" json:"token_file,omitempty" unit:"path" choices:"/" help:"The token, for the hub if there is one."`
	// TLSCA has the certificate authorities to trust.
	TLSCA string `name:"tls_ca" json:"tls_ca,omitempty" unit:"path" choices:"/" help:"The certificate authorities to trust, as PEM, instead of the system's."`
	// TLSCert is the client certificate.
	TLSCert string `name:"tls_cert" json:"tls_cert,omitempty" unit:"path" choices:"/" help:"The client certificate, as PEM."`
	// TLSKey is the private key of TLSCert.
	TLSKey string `name:"tls_key" json:"tls_key,omitempty" unit:"path" choices:"/" help:"Its private key, as PEM."`
}

// Contexts is a file with contexts. The zero value is an empty one without a path.
type Contexts struct {
	// Path is the path of the file.
	Path string
	// Current is the name of the context that is used without another; empty for none.
	Current string
	// List are the contexts by their names.
	List map[string]Context

	current Source
	sources map[string]Sources
}

// ContextsPath returns the path of the user's file with contexts: that of
// $XDG_CONFIG_HOME, or what the system has instead. It fails if the user has no such
// directory.
func ContextsPath() (string, error) {
	directory, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("there is no directory for contexts: %w", err)
	}
	return filepath.Join(directory, "execwire", "contexts.toml"), nil
}

// LoadContexts reads a file with contexts; one that does not exist has none. What is wrong
// with it is an [*Error].
func LoadContexts(path string) (*Contexts, error) {
	contexts := &Contexts{Path: path, List: map[string]Context{}, sources: map[string]Sources{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return contexts, nil
	}
	if err != nil {
		return nil, &Error{Source: path, Problem: "cannot be read: " + err.Error()}
	}
	f, err := parseFile(path, text)
	if err != nil {
		return nil, err
	}
	for _, e := range f.entries {
		at := Source{Kind: FromFile, Name: path, Line: e.line, Column: e.valueColumn}
		current, isText := e.value.(string)
		_, isTable := e.value.(map[string]any)
		switch {
		case e.name == "current" && isText:
			contexts.Current, contexts.current = current, at
		case e.name == "contexts" && isTable:
			if err := contexts.add(e.members); err != nil {
				return nil, err
			}
		default:
			return nil, &Error{Source: path, Line: e.line, Column: e.column, Setting: e.name, Problem: "does not belong here",
				Fix: `the file has current = "NAME", and a table [contexts.NAME] for each context`}
		}
	}
	if contexts.Current != "" {
		if _, _, err := contexts.Get(contexts.Current); err != nil {
			return nil, contexts.current.at("", fmt.Errorf("current: %w", err))
		}
	}
	return contexts, nil
}

func (c *Contexts) add(tables []entry) error {
	for _, e := range tables {
		at := Source{Kind: FromFile, Name: c.Path, Line: e.line, Column: e.column}
		if _, isTable := e.value.(map[string]any); !isTable {
			return at.at("contexts."+e.name, errors.New("is not a table: write [contexts."+e.name+"]"))
		}
		var context Context
		list := Values(&context)
		f := file{path: c.Path, entries: e.members}
		if problems := f.apply(list); len(problems) > 0 {
			return problems[0]
		}
		sources := f.sources(list)
		err := firstError(checkSettings(list))
		if err == nil {
			err = context.Validate(e.name)
		}
		if err != nil {
			if located := sources.locate(err); located.(*Error).Line == 0 {
				return at.at("contexts."+e.name, err)
			}
			return err
		}
		c.List[e.name], c.sources[e.name] = context, sources
	}
	return nil
}

// at returns an error about a setting of a file at this place.
func (s Source) at(setting string, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return &Error{Source: s.Name, Line: s.Line, Column: s.Column, Setting: setting, Problem: e.Problem, Fix: e.Fix}
	}
	return &Error{Source: s.Name, Line: s.Line, Column: s.Column, Setting: setting, Problem: err.Error()}
}

const maxContextName = 100

var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// Validate returns an [*Error] if the context cannot have this name, or does not name one
// server. A hub without an executor is none, but has executors.
func (c Context) Validate(name string) error {
	switch {
	case len(name) > maxContextName || !contextName.MatchString(name):
		return &Error{Problem: fmt.Sprintf("the name %.120q is not allowed", name), Fix: "a name has up to 100 letters, digits, dots, - and _, and begins with a letter or digit"}
	case c.Server != "" && (c.Hub != "" || c.Executor != ""):
		return &Error{Setting: "server", Problem: "is for a server, and hub and executor are for one behind a hub", Fix: "leave one of them out"}
	case c.Server == "" && c.Hub == "":
		return &Error{Problem: "names neither a server nor a hub"}
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return &Error{Setting: "tls_cert", Problem: "and tls_key are only used together"}
	}
	return nil
}

// Get returns the context with a name, and where its settings are.
func (c *Contexts) Get(name string) (Context, Sources, error) {
	context, ok := c.List[name]
	if ok {
		return context, c.sources[name], nil
	}
	problem := fmt.Sprintf("there is no context %.120q in %s", name, c.Path)
	if nearest, _ := similar.Nearest(name, 0, c.Names()); nearest != "" {
		problem += ": did you mean " + nearest + "?"
	}
	return Context{}, nil, errors.New(problem)
}

// Names returns the names of the contexts in alphabetical order.
func (c *Contexts) Names() []string { return slices.Sorted(maps.Keys(c.List)) }

// Save replaces the file at once, for its owner alone. The one that a link names is
// replaced, and not the link.
func (c *Contexts) Save() error {
	tables := map[string]map[string]string{}
	for name, context := range c.List {
		tables[name] = map[string]string{}
		for _, s := range Values(&context) {
			if text := s.value.String(); text != "" {
				tables[name][s.Name] = text
			}
		}
	}
	var text bytes.Buffer
	text.WriteString("# Servers of execwire commands; see: execwire context --help\n")
	encoder := toml.NewEncoder(&text)
	encoder.Indent = ""
	err := encoder.Encode(struct {
		Current  string                       `toml:"current,omitempty"`
		Contexts map[string]map[string]string `toml:"contexts,omitempty"`
	}{c.Current, tables})
	if err != nil {
		return err
	}
	path := c.Path
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return replaceFile(path, text.Bytes())
}

// replaceFile replaces a file at once with one for its owner alone.
func replaceFile(path string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
