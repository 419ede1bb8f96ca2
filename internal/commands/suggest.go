package commands

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/execwire/execwire/internal/flags"
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

// ExplainFlag adds to the error for an unknown flag the flag that was probably meant. Other
// errors are unchanged.
func ExplainFlag(command *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var names []string
	command.Flags().VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden || flags.IsSetting(flag) {
			names = append(names, flag.Name)
		}
	})
	nearest, _ := similar.Nearest(unknown.GetSpecifiedName(), 0, names)
	if nearest != "" {
		return fmt.Errorf("%w: did you mean --%s?", err, nearest)
	}
	return err
}
