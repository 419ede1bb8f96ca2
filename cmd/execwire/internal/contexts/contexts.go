// Package contexts has the commands for the user's contexts: servers by names.
package contexts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/internal/config"
)

// Program is what the commands need of their program.
type Program struct {
	// Usage makes errors of command lines.
	Usage func(command *cobra.Command, err error) error
	// Check returns an error for a context whose addresses no client understands.
	Check func(config.Context) error
	// Print prints rows, the first of which is a header.
	Print func(rows [][]string) error
}

// Load reads the user's contexts; without a directory for them there are none.
func Load() (*config.Contexts, error) {
	path, err := config.ContextsPath()
	if err != nil {
		return &config.Contexts{}, nil
	}
	return config.LoadContexts(path)
}

// Complete completes names of contexts.
func Complete(_ *cobra.Command, arguments []string, typed string) (words []string, directive cobra.ShellCompDirective) {
	directive = cobra.ShellCompDirectiveNoFileComp
	contexts, err := Load()
	if err != nil {
		return nil, directive
	}
	for _, name := range contexts.Names() {
		if strings.HasPrefix(name, typed) {
			words = append(words, name+"\t"+Address(contexts.List[name]))
		}
	}
	return words, directive
}

// Address describes the server of a context.
func Address(c config.Context) string {
	switch {
	case c.Server != "":
		return c.Server
	case c.Executor == "":
		return c.Hub
	}
	return c.Executor + " of " + c.Hub
}

// NewCommand returns the command for contexts.
func NewCommand(p Program) *cobra.Command {
	command := &cobra.Command{
		Use:   "context",
		Short: "Name servers, and choose the one that commands use",
		Long: `context names servers, so that other commands need no --server. Such a command uses
the server of its flags (--server, --hub and --executor, or --context); else that of
EXECWIRE_SERVER, or of EXECWIRE_HUB and EXECWIRE_EXECUTOR; else the context of
EXECWIRE_CONTEXT; else the current context. Without any of them run and doctor start a
server inside the command, and other commands use tcp://127.0.0.1:7420.

A context also names the files with the token, the certificate authorities and the
client certificate for its server. Flags override them, and they override variables.
A context without a token file uses the token that EXECWIRE_TOKEN or
EXECWIRE_TOKEN_FILE has, like any server; no other server gets the token of a context.

Contexts are in execwire/contexts.toml in $XDG_CONFIG_HOME, or ~/.config (on macOS
~/Library/Application Support, on Windows %AppData%). The file has no secrets, and may
be edited:

  current = "build"

  [contexts.build]
  server = "tls://build.example.org:7420"
  token_file = "/home/ann/.config/execwire/build.token"

  [contexts.farm]
  hub = "https://hub.example.org"
  executor = "build-1"`,
		Example: `  execwire context add build --server tls://build.example.org:7420 --token-file build.token --use
  execwire context ls
  execwire ps --context build`,
		Args: p.arguments(0, 0, ""),
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(p.newAdd(), p.newUse(), p.newList(), p.newRemove())
	return command
}

// change changes the file by do, whose errors are those of the command line.
func (p Program) change(command *cobra.Command, do func(*config.Contexts) error) error {
	path, err := config.ContextsPath()
	if err != nil {
		return err
	}
	contexts, err := config.LoadContexts(path)
	if err != nil {
		return err
	}
	if err := do(contexts); err != nil {
		return p.Usage(command, err)
	}
	return contexts.Save()
}

func (p Program) arguments(least, most int, missing string) cobra.PositionalArgs {
	return func(command *cobra.Command, arguments []string) error {
		switch {
		case len(arguments) < least:
			return p.Usage(command, errors.New(missing))
		case len(arguments) > most:
			return p.Usage(command, fmt.Errorf("unexpected argument %q", arguments[most]))
		}
		return nil
	}
}

func (p Program) newAdd() *cobra.Command {
	var context config.Context
	var use, replace bool
	command := &cobra.Command{
		Use:   "add NAME (--server URL | --hub URL [--executor ID]) [flags]",
		Short: "Add a context",
		Long: `add adds a context, or with --replace replaces it. It does not connect to the server.
Paths of files are stored as absolute paths. A hub without --executor is for commands
with --executor, and for execwire executors.`,
		Example: `  execwire context add build --server tls://build.example.org:7420 --token-file build.token --use
  execwire context add farm --hub https://hub.example.org --executor build-1
  execwire context add here --server unix:///run/user/1000/execwire.sock --replace`,
		ValidArgsFunction: cobra.NoFileCompletions,
		Args:              p.arguments(1, 1, "name the context"),
		RunE: func(command *cobra.Command, arguments []string) error {
			name := arguments[0]
			for _, file := range []*string{&context.TokenFile, &context.TLSCA, &context.TLSCert, &context.TLSKey} {
				if *file == "" {
					continue
				}
				absolute, err := filepath.Abs(*file)
				if err != nil {
					return err
				}
				*file = absolute
			}
			return p.change(command, func(contexts *config.Contexts) error {
				if _, exists := contexts.List[name]; exists && !replace {
					return fmt.Errorf("the context %s exists: choose another name, or add --replace", name)
				}
				err := context.Validate(name)
				if err == nil {
					err = p.Check(context)
				}
				if err != nil {
					return byFlags(err)
				}
				contexts.List[name] = context
				if use {
					contexts.Current = name
				}
				return nil
			})
		},
	}
	f := command.Flags()
	f.SortFlags = false
	f.StringVar(&context.Server, "server", "", "the `URL` of the server, tcp://HOST:PORT, tls://HOST:PORT, unix:///PATH")
	f.StringVar(&context.Hub, "hub", "", "or the `URL` of a hub, https://HOST")
	f.StringVar(&context.Executor, "executor", "", "the `ID` of the executor of the hub")
	f.StringVar(&context.TokenFile, "token-file", "", "the `file` with the token, for the hub if there is one")
	f.StringVar(&context.TLSCA, "tls-ca", "", "the `file` with the certificate authorities to trust, as PEM, instead of the system's")
	f.StringVar(&context.TLSCert, "tls-cert", "", "the `file` with the client certificate for tls://, as PEM")
	f.StringVar(&context.TLSKey, "tls-key", "", "the `file` with its private key, as PEM")
	f.BoolVar(&use, "use", false, "make it the current context, too")
	f.BoolVar(&replace, "replace", false, "replace a context with this name")
	return command
}

// byFlags names flags instead of settings in an error about a context.
func byFlags(err error) error {
	var wrong *config.Error
	if !errors.As(err, &wrong) {
		return err
	}
	text := strings.TrimPrefix(err.Error(), "configuration: ")
	switch wrong.Setting {
	case "server":
		text = "--server is for a server, and --hub and --executor are for one behind a hub: leave one of them out"
	case "tls_cert":
		text = "--tls-cert and --tls-key are only used together"
	case "":
		if strings.HasPrefix(text, "names neither") {
			text = "name the server with --server, or its hub with --hub and --executor"
		}
	}
	return errors.New(text)
}

func (p Program) newUse() *cobra.Command {
	var none bool
	command := &cobra.Command{
		Use:   "use (NAME | --none)",
		Short: "Choose the current context",
		Long: `use makes a context the current one, whose server commands use unless flags or
variables name another. With --none there is no current context.`,
		Example:           "  execwire context use build\n  execwire context use --none",
		ValidArgsFunction: completeOne,
		Args: func(command *cobra.Command, arguments []string) error {
			if none {
				return p.arguments(0, 0, "")(command, arguments)
			}
			return p.arguments(1, 1, "name the context, or use --none")(command, arguments)
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			err := p.change(command, func(contexts *config.Contexts) error {
				contexts.Current = ""
				if none {
					return nil
				}
				contexts.Current = arguments[0]
				_, _, err := contexts.Get(arguments[0])
				return err
			})
			if err == nil {
				warn(command.ErrOrStderr())
			}
			return err
		},
	}
	command.Flags().BoolVar(&none, "none", false, "use no context")
	return command
}

func completeOne(command *cobra.Command, arguments []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(arguments) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return Complete(command, arguments, typed)
}

// warn says which variable overrides the current context.
func warn(w io.Writer) {
	for _, name := range []string{"EXECWIRE_SERVER", "EXECWIRE_EXECUTOR", config.ContextVariable} {
		if os.Getenv(name) != "" {
			fmt.Fprintf(w, "execwire: warning: %s is set and overrides the current context\n", name)
		}
	}
}

// object is the JSON output for a context.
type object struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	config.Context
}

func (p Program) newList() *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:   "ls [--json]",
		Short: "List the contexts",
		Long: `ls lists the contexts; an asterisk marks the current one.

With --json each is an object on its own line: name, current, and those that it has of
server, hub, executor, token_file, tls_ca, tls_cert and tls_key.`,
		Example:           "  execwire context ls\n  execwire context ls --json | jq -r 'select(.current).name'",
		ValidArgsFunction: cobra.NoFileCompletions,
		Args:              p.arguments(0, 0, ""),
		RunE: func(command *cobra.Command, _ []string) error {
			contexts, err := Load()
			if err != nil {
				return err
			}
			warn(command.ErrOrStderr())
			if asJSON {
				return printJSON(command.OutOrStdout(), contexts)
			}
			rows := [][]string{{"CURRENT", "NAME", "SERVER", "TOKEN FILE"}}
			for _, name := range contexts.Names() {
				mark := ""
				if name == contexts.Current {
					mark = "*"
				}
				rows = append(rows, []string{mark, name, Address(contexts.List[name]), contexts.List[name].TokenFile})
			}
			return p.Print(rows)
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON objects, one per line")
	return command
}

func printJSON(w io.Writer, contexts *config.Contexts) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	for _, name := range contexts.Names() {
		if err := encoder.Encode(object{name, name == contexts.Current, contexts.List[name]}); err != nil {
			return err
		}
	}
	return nil
}

func (p Program) newRemove() *cobra.Command {
	return &cobra.Command{
		Use:               "rm NAME...",
		Short:             "Remove contexts",
		Long:              "rm removes contexts, and no token or server. If one is the current context, there is none\nafterwards.",
		Example:           "  execwire context rm build",
		ValidArgsFunction: Complete,
		Args:              p.arguments(1, 1000, "name the contexts"),
		RunE: func(command *cobra.Command, arguments []string) error {
			return p.change(command, func(contexts *config.Contexts) error {
				for _, name := range arguments {
					if _, _, err := contexts.Get(name); err != nil {
						return err
					}
					delete(contexts.List, name)
					if name == contexts.Current {
						contexts.Current = ""
					}
				}
				return nil
			})
		},
	}
}
