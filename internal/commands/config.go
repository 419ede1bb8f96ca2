package commands

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/flags"
)

// Program is a program with settings.
type Program struct {
	// Name is the name of the program, and Command its command that has the settings, as
	// "execwire serve".
	Name, Command string
	// Settings are its settings with their defaults.
	Settings []config.Setting
	// AddFlags adds --config and the flags for settings.
	AddFlags func(f *pflag.FlagSet)
	// Load returns the *config.Config or *config.Hub of the file, the environment and the
	// flags of AddFlags, with the sources of settings that the flags do not change. Its
	// errors are those of Command.
	Load func(command *cobra.Command) (any, config.Sources, error)
	// Check returns what is wrong with a file.
	Check func(path string) []*config.Error
	// Usage makes errors of command lines.
	Usage UsageError
	// Invalid is the error for a file whose errors have been printed.
	Invalid error
}

// NewConfig returns the command for the settings of a program.
func NewConfig(p Program) *cobra.Command {
	command := &cobra.Command{
		Use:   "config",
		Short: "Print settings and check files with them",
		Long: `config prints the settings of ` + p.Command + ` and where each comes from, checks a
file with settings, and prints an example of one.`,
		Example: "  " + p.Name + " config print --config " + p.Name + ".toml\n  " +
			p.Name + " config check " + p.Name + ".toml\n  " +
			p.Name + " config example > " + p.Name + ".toml",
		Args: func(command *cobra.Command, arguments []string) error {
			if len(arguments) > 0 {
				return p.Usage(command, UnknownCommand(command, arguments[0]))
			}
			return nil
		},
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newPrint(p), newCheck(p), newExample(p))
	return command
}

func (p Program) noArguments(command *cobra.Command, arguments []string) error {
	if len(arguments) > 0 {
		return p.Usage(command, fmt.Errorf("unexpected argument %q", arguments[0]))
	}
	return nil
}

func newPrint(p Program) *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:                   "print [--json] [--config FILE] [flags for settings]",
		DisableFlagsInUseLine: true,
		Short:                 "Print the settings and where each comes from",
		Long: `print prints the value that each setting has in ` + p.Command + ` with the same flags
and environment, and where it comes from: default, FILE:LINE, $VARIABLE, --FLAG, or
another setting. The output is a configuration file. A value that could help to guess a
secret is not printed. It fails as ` + p.Command + ` does if a setting is invalid.

With --json each setting is an object on its own line: name, value (text, a number or
a list of texts), source (default, file, environment, flag or implied), and for the
middle three from, the place. A value that is not printed is null.`,
		Example: "  " + p.Name + " config print --config " + p.Name + ".toml\n  " +
			p.Name + " config print --json | jq -r 'select(.source != \"default\").name'",
		Args: p.noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			return printSettings(command, p, asJSON)
		},
	}
	f := command.Flags()
	f.SortFlags = false
	f.BoolVar(&asJSON, "json", false, "print JSON objects, one per line")
	p.AddFlags(f)
	return command
}

func printSettings(command *cobra.Command, p Program, asJSON bool) error {
	configuration, sources, err := p.Load(command)
	if err != nil {
		return err
	}
	config.WarnOfVariables(slog.New(slog.NewTextHandler(command.ErrOrStderr(), nil)), p.Settings, os.Environ())
	out := command.OutOrStdout()
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for i, s := range config.Values(configuration) {
		source := sources[s.Name]
		if source.Kind == config.FromDefault && s.Notation() != p.Settings[i].Notation() {
			source.Kind = config.FromOther
		}
		if flag, isSet := flags.Flag(command.Flags(), s.Name); isSet {
			source = config.Source{Kind: config.FromFlag, Name: flag}
		}
		if asJSON {
			err = encoder.Encode(describe(s, source))
		} else {
			_, err = fmt.Fprintln(out, line(s, source))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func isHidden(s config.Setting) bool { return s.Secret && s.Value() != "" }

func line(s config.Setting, source config.Source) string {
	if isHidden(s) {
		return fmt.Sprintf("# %s is set and not printed  # %s", s.Name, source)
	}
	return fmt.Sprintf("%s = %s  # %s", s.Name, s.Notation(), source)
}

// settingObject is the JSON output for a setting.
type settingObject struct {
	Name   string `json:"name"`
	Value  any    `json:"value"`
	Source string `json:"source"`
	From   string `json:"from,omitempty"`
}

func describe(s config.Setting, source config.Source) settingObject {
	object := settingObject{Name: s.Name, Value: s.Value(), Source: string(source.Kind)}
	if isHidden(s) {
		object.Value = nil
	}
	if source.Kind == config.FromDefault {
		object.Source = "default"
	} else if source.Kind != config.FromOther {
		object.From = source.String()
	}
	return object
}

func newCheck(p Program) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file",
		Long: `check prints every error of a configuration file, one per line as
FILE:LINE:COLUMN: SETTING PROBLEM: ADVICE. Values that contradict each other are
reported when there are no other errors. Environment variables and flags are not
considered; config print considers them. Whether files that settings name exist, and
what they ask for works here, shows at the start of ` + p.Command + `.

The exit code is 1 if there are errors.`,
		Example: "  " + p.Name + " config check /etc/execwire/" + p.Name + ".toml",
		Args: func(command *cobra.Command, arguments []string) error {
			if len(arguments) != 1 || arguments[0] == "" {
				return p.Usage(command, errors.New("name one file"))
			}
			return nil
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			problems := p.Check(arguments[0])
			for _, problem := range problems {
				if _, err := fmt.Fprintln(command.OutOrStdout(), problem.Finding()); err != nil {
					return err
				}
			}
			if len(problems) > 0 {
				return p.Invalid
			}
			_, err := fmt.Fprintf(command.OutOrStdout(), "%s: no errors\n", arguments[0])
			return err
		},
	}
}

func newExample(p Program) *cobra.Command {
	return &cobra.Command{
		Use:   "example",
		Short: "Print a configuration file with every setting as a comment",
		Long: `example prints a configuration file for ` + p.Command + ` with every setting: what it
does, its unit and range, and as a comment its default. The file as it is changes
nothing; remove a # to set a value.`,
		Example: "  " + p.Name + " config example > " + p.Name + ".toml",
		Args:    p.noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(command.OutOrStdout(), config.Example(p.Command, p.Settings))
			return err
		},
	}
}
