package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/internal/commands"
	"github.com/execwire/execwire/internal/flags"
)

// Checks of command lines, before a command runs. Combine them by [cobra.MatchAll].

// unlimited is the number of arguments of a command that accepts any.
const unlimited = math.MaxInt

// noArguments rejects arguments with the error of an invalid flag. Those of a command with
// others below it are unknown commands.
func noArguments(command *cobra.Command, arguments []string) error {
	if len(arguments) > 0 && command.HasSubCommands() {
		return usageError(command, commands.UnknownCommand(command, arguments[0]))
	}
	return atMost(command, arguments, 0)
}

func atMost(command *cobra.Command, arguments []string, most int) error {
	if len(arguments) > most {
		return usageError(command, fmt.Errorf("unexpected argument %q", arguments[most]))
	}
	return nil
}

// ids requires at least one id and at most most.
func ids(what string, most int) cobra.PositionalArgs {
	return func(command *cobra.Command, arguments []string) error {
		if len(arguments) == 0 || arguments[0] == "" {
			return usageError(command, fmt.Errorf("name a %s: give its id", what))
		}
		return atMost(command, arguments, most)
	}
}

// paths requires at least least paths and at most most.
func paths(least, most int) cobra.PositionalArgs {
	return func(command *cobra.Command, arguments []string) error {
		if err := atMost(command, arguments, most); err != nil {
			return err
		}
		if len(arguments) < least {
			return usageError(command, errors.New("name a path"))
		}
		if slices.Contains(arguments, "") {
			return usageError(command, errors.New("a path is empty"))
		}
		return nil
	}
}

// sourcesAndDest requires sources and a destination.
func sourcesAndDest(verb string) cobra.PositionalArgs {
	return func(command *cobra.Command, arguments []string) error {
		if len(arguments) == 1 {
			return usageError(command, fmt.Errorf("name where to %s %q to", verb, arguments[0]))
		}
		return paths(2, unlimited)(command, arguments)
	}
}

// valid rejects a command line for which check returns an error.
func valid(check func(command *cobra.Command, arguments []string) error) cobra.PositionalArgs {
	return func(command *cobra.Command, arguments []string) error {
		if err := check(command, arguments); err != nil {
			return usageError(command, err)
		}
		return nil
	}
}

// exclusive rejects more than one of these flags.
func exclusive(names ...string) cobra.PositionalArgs {
	return func(command *cobra.Command, _ []string) error {
		var given []string
		for _, name := range names {
			if command.Flags().Changed(name) {
				given = append(given, "--"+name)
			}
		}
		if len(given) > 1 {
			return usageError(command, fmt.Errorf("%s exclude each other", strings.Join(given, " and ")))
		}
		return nil
	}
}

// nonNegative rejects flags with a negative number.
func nonNegative(names ...string) cobra.PositionalArgs {
	return func(command *cobra.Command, _ []string) error {
		for _, name := range names {
			if text := command.Flags().Lookup(name).Value.String(); strings.HasPrefix(text, "-") {
				return usageError(command, fmt.Errorf("--%s is %s: it cannot be negative", name, text))
			}
		}
		return nil
	}
}

// positive rejects flags with a duration that is not more than 0.
func positive(names ...string) cobra.PositionalArgs {
	return func(command *cobra.Command, _ []string) error {
		for _, name := range names {
			if d, _ := command.Flags().GetDuration(name); d <= 0 && command.Flags().Changed(name) {
				return usageError(command, fmt.Errorf("--%s is %v: it has to be more than 0", name, d))
			}
		}
		return nil
	}
}

// Flags that several commands add; in these, flags is the name of their values.

// addDuration adds a flag for a duration, with a unit or in seconds.
var addDuration = flags.Duration

// addHidden adds a hidden switch, for a habit of another program.
var addHidden = flags.Hidden

// addSynonyms makes a command accept other names of its flags.
var addSynonyms = flags.Synonyms

// expandFlags returns a command line with the long form of flags that pflag cannot parse.
func expandFlags(arguments []string) []string {
	expansions := map[string]func(string) string{"find": longFlag, "kill": signalFlag, "chmod": modeArgument}
	if len(arguments) == 0 || expansions[arguments[0]] == nil {
		return arguments
	}
	expanded := slices.Clone(arguments)
	for i, argument := range arguments[1:] {
		if argument == "--" {
			break
		}
		expanded[1+i] = expansions[arguments[0]](argument)
	}
	return expanded
}

// modeArgument returns a MODE of chmod that looks like flags, as in -x, as one that does not.
func modeArgument(argument string) string {
	if letters, isFlag := strings.CutPrefix(argument, "-"); isFlag && letters != "" && strings.Trim(letters, "rwxXst") == "" {
		return "a" + argument
	}
	return argument
}
