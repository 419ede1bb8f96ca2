package commands

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/execwire/execwire/internal/flags"
	"github.com/execwire/execwire/internal/similar"
)

// UnknownCommand returns the error for a word that is no command below one, with what was
// probably meant: the annotation of the command for this word, else a similar name.
func UnknownCommand(command *cobra.Command, word string) error {
	if meant := command.Annotations[word]; meant != "" {
		return fmt.Errorf("%q is not a command: %s", word, meant)
	}
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

// CheckName returns the error of [UnknownCommand] if the arguments of a program begin with
// a word that is no command, before their flags are parsed, which are those of the command
// that was meant. at is the command below which there is none.
func CheckName(root *cobra.Command, arguments []string) (at *cobra.Command, err error) {
	root.InitDefaultHelpCmd()
	at = root
	for _, word := range arguments {
		// Commands of the completion scripts begin with __, and cobra adds them later.
		if !at.HasSubCommands() || strings.HasPrefix(word, "-") || strings.HasPrefix(word, "__") {
			return at, nil
		}
		i := slices.IndexFunc(at.Commands(), func(c *cobra.Command) bool { return c.Name() == word || c.HasAlias(word) })
		if i < 0 {
			return at, UnknownCommand(at, word)
		}
		at = at.Commands()[i]
	}
	return at, nil
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
