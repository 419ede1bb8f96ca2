package commands

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/similar"
)

// UnknownCommand returns the error for a word that is no command below one, with the
// command that was probably meant.
func UnknownCommand(command *cobra.Command, word string) error {
	var names []string
	for _, child := range command.Commands() {
		if child.IsAvailableCommand() {
			names = append(names, child.Name())
		}
	}
	if nearest, _ := similar.Nearest(word, 0, names); nearest != "" {
		return fmt.Errorf("%q is not a command: did you mean %s?", word, nearest)
	}
	return fmt.Errorf("%q is not a command", word)
}

// ExplainFlag adds to the error for an unknown flag the flag that was probably meant, or how
// to set the setting of this name, which has no flag. settings are those of a command with
// --config. Other errors are unchanged.
func ExplainFlag(command *cobra.Command, err error, settings []config.Setting) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	name := unknown.GetSpecifiedName()
	var names []string
	command.Flags().VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			names = append(names, flag.Name)
		}
	})
	nearest, slips := similar.Nearest(name, 0, names)
	for _, s := range settings {
		if command.Flags().Lookup("config") != nil && (nearest == "" || slips > 0) && s.Name == strings.ReplaceAll(name, "-", "_") {
			return fmt.Errorf("%w: the setting %s has no flag: set it in the file of --config, or by %s", err, s.Name, s.Environment())
		}
	}
	if nearest != "" {
		return fmt.Errorf("%w: did you mean --%s?", err, nearest)
	}
	return err
}
