package commands

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// NewMan returns the hidden command that writes the manual pages of all commands of a
// program into a directory. version is that of the program.
func NewMan(version string, usage UsageError) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write the manual pages of all commands",
		Long:   "man writes the manual pages of all commands into a directory, which it makes.",
		Hidden: true,
		Args: func(command *cobra.Command, arguments []string) error {
			if len(arguments) != 1 || arguments[0] == "" {
				return usage(command, errors.New("name one directory"))
			}
			return nil
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := os.MkdirAll(arguments[0], 0o755); err != nil {
				return err
			}
			return writePages(command.Root(), version, arguments[0])
		},
	}
}

// writePages writes the pages of a command and of those below it.
func writePages(command *cobra.Command, version, directory string) error {
	if err := os.WriteFile(filepath.Join(directory, pageName(command)+".1"), page(command, version), 0o644); err != nil {
		return err
	}
	for _, child := range visible(command) {
		if err := writePages(child, version, directory); err != nil {
			return err
		}
	}
	return nil
}

func visible(command *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(command.Commands()), func(c *cobra.Command) bool { return !c.IsAvailableCommand() })
}

func pageName(command *cobra.Command) string {
	return strings.ReplaceAll(command.CommandPath(), " ", "-")
}

// page returns the manual page of a command, in the macros of man(7). The help of commands
// is text, not Markdown, so that it is not made by cobra/doc.
func page(command *cobra.Command, version string) []byte {
	var b bytes.Buffer
	name := pageName(command)
	fmt.Fprintf(&b, ".TH %s 1 \"\" %s\n", quoted(strings.ToUpper(name)), quoted(command.Root().Name()+" "+version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(command.Short))
	b.WriteString(".SH SYNOPSIS\n.nf\n" + roff(useLine(command)) + "\n.fi\n")
	b.WriteString(".SH DESCRIPTION\n")
	writeText(&b, cmp.Or(command.Long, command.Short+"."))
	if children := visible(command); len(children) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, child := range children {
			fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff(pageName(child)), roff(child.Short))
		}
	}
	if own := command.NonInheritedFlags(); own.HasAvailableFlags() {
		b.WriteString(".SH OPTIONS\n")
		own.VisitAll(func(flag *pflag.Flag) { writeFlag(&b, flag) })
	}
	if command.Example != "" {
		b.WriteString(".SH EXAMPLES\n.nf\n" + roff(unindent(command.Example)) + "\n.fi\n")
	}
	if parent := command.Parent(); parent != nil {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(pageName(parent)))
	}
	return b.Bytes()
}

// useLine returns the forms of the command, one per line.
func useLine(command *cobra.Command) string {
	return unindent(command.UseLine())
}

func unindent(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}
	return strings.Join(lines, "\n")
}

// writeText writes paragraphs. Those with an indented line keep their lines.
func writeText(b *bytes.Buffer, text string) {
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if strings.HasPrefix(paragraph, " ") || strings.Contains(paragraph, "\n ") {
			b.WriteString(".PP\n.nf\n" + roff(paragraph) + "\n.fi\n")
			continue
		}
		b.WriteString(".PP\n" + roff(paragraph) + "\n")
	}
}

func writeFlag(b *bytes.Buffer, flag *pflag.Flag) {
	if flag.Hidden || flag.Deprecated != "" {
		return
	}
	argument, usage := pflag.UnquoteUsage(flag)
	b.WriteString(".TP\n")
	if flag.Shorthand != "" {
		b.WriteString("\\fB" + roff("-"+flag.Shorthand) + "\\fR, ")
	}
	b.WriteString("\\fB" + roff("--"+flag.Name) + "\\fR")
	if argument != "" {
		b.WriteString(" \\fI" + roff(argument) + "\\fR")
	}
	b.WriteString("\n" + roff(usage))
	if !slices.Contains([]string{"", "false", "0", "0s", "[]"}, flag.DefValue) {
		b.WriteString(" (default " + roff(flag.DefValue) + ")")
	}
	b.WriteByte('\n')
}

var (
	nonASCII    = regexp.MustCompile(`[^\x00-\x7f]`)
	controlLine = regexp.MustCompile(`(?m)^\.`)
)

// roff escapes text for the formatter: characters that it would print as others, such as
// the hyphens of flags, and lines that would be requests.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `^`, `\(ha`, `~`, `\(ti`, "`", `\(ga`, `'`, `\(aq`).Replace(text)
	text = nonASCII.ReplaceAllStringFunc(text, func(letter string) string {
		r, _ := utf8.DecodeRuneInString(letter)
		return fmt.Sprintf(`\[u%04X]`, r)
	})
	return controlLine.ReplaceAllString(text, `\&$0`)
}

// quoted is an argument of a macro.
func quoted(text string) string { return `"` + strings.ReplaceAll(roff(text), `"`, `\(dq`) + `"` }
