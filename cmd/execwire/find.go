package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// singleDashFlags are the flags of find that may have a single dash.
var singleDashFlags = []string{"name", "type", "maxdepth", "print0", "ignore", "json"}

// longFlag returns a flag of find with two dashes.
func longFlag(argument string) string {
	for _, word := range singleDashFlags {
		if rest, ok := strings.CutPrefix(argument, "-"+word); ok && (rest == "" || rest[0] == '=') {
			return "-" + argument
		}
	}
	return argument
}

func newFindCommand(std streams) *cobra.Command {
	search := &finder{std: std}
	command := &cobra.Command{
		Use:   "find [PATH] [-name PATTERN] [-type f|d|l] [-maxdepth N] [-ignore PATTERN]... [-print0|-json]",
		Short: "List a directory tree of a server",
		Long: `find lists a directory and everything below it, breadth first; without PATH the
home directory of the server's user. Links are not followed, except PATH.

-name selects names that match a pattern: * matches any characters, ? one character,
[a-z] one of those. -type selects files (f), directories (d), links (l), FIFOs (p),
sockets (s) and devices (c, b). -ignore skips matching names with everything below,
as a line of .gitignore does: a name at any depth, or a path if it has a slash.

With -json each file is an object on its own line, with the members of stat --json.
The flags of find may begin with one dash or two.

The exit code is 1 if a directory could not be read, or PATH does not exist.` + pathHelp,
		Example: `  execwire find /srv -name '*.log' -type f
  execwire find -maxdepth 2 -ignore node_modules
  execwire find /srv/cache -type f -print0 | xargs -0 execwire rm`,
		Args: cobra.MatchAll(paths(0, 1), exclusive("print0", "json"),
			valid(func(_ *cobra.Command, arguments []string) error { return search.validate(arguments) })),
	}
	f := command.Flags()
	f.StringVar(&search.name, "name", "", "only names that match this `pattern`")
	f.StringVar(&search.typeLetter, "type", "", "only files of this `type`: f, d, l, p, s, c or b")
	f.Uint32Var(&search.maxDepth, "maxdepth", 0, "the number of `levels`; 0 is only PATH (default all)")
	f.StringArrayVar(&search.ignore, "ignore", nil, "skip what matches this `pattern`; may be repeated")
	f.BoolVar(&search.print0, "print0", false, "separate names by NUL instead of newlines, for xargs -0")
	f.BoolVar(&search.json, "json", false, "print JSON objects, one per line")
	onServer(command, serverUse{completes: complete.Paths, paths: everyPath}, func(ctx context.Context, c *client.Client, arguments []string) error {
		search.client, search.hasDepth = c, f.Changed("maxdepth")
		return eachPath(std, arguments, nil, func(name string) error { return search.find(ctx, name) })
	})
	return command
}

// finder is one run of find.
type finder struct {
	name, typeLetter string // flags
	maxDepth         uint32
	hasDepth         bool
	ignore           []string
	print0, json     bool

	client   *client.Client
	std      streams
	argument string // as given, prefix of the output
	kind     execwirev1.FileType
}

// validate checks the command line.
func (f *finder) validate(arguments []string) error {
	f.argument = "."
	if len(arguments) > 0 {
		f.argument = cmp.Or(strings.TrimPrefix(arguments[0], ":"), ".")
	}
	for kind, letter := range typeLetters {
		if letter == f.typeLetter {
			f.kind = kind
		}
	}
	if f.kind == 0 && f.typeLetter != "" {
		return fmt.Errorf("-type is %q: use f, d, l, p, s, c or b", f.typeLetter)
	}
	if _, err := path.Match(f.name, ""); err != nil {
		return fmt.Errorf("-name is %q: %w", f.name, err)
	}
	return nil
}

// find lists a path and everything below it.
func (f *finder) find(ctx context.Context, root string) error {
	info, err := f.client.Stat(ctx, root)
	if err != nil {
		return err
	}
	if err := f.print(client.WalkEntry{FileInfo: info, Type: info.Metadata.GetType()}, root); err != nil {
		return err
	}
	if !isDirectory(info) || f.hasDepth && f.maxDepth == 0 {
		return nil
	}
	options := client.WalkOptions{Ignore: f.ignore, Metadata: f.json}
	if f.hasDepth {
		depth := f.maxDepth - 1
		options.MaxDepth = &depth
	}
	failed := false
	options.OnFailed = func(name string, err error) {
		failed = true
		report(f.std.err, &exitError{err: fmt.Errorf("failed to read %s: %w", path.Join(root, name), err)})
	}
	err = f.client.Walk(ctx, root, options, func(entry client.WalkEntry) error { return f.print(entry, root) })
	if err == nil && failed {
		return &exitError{code: codeSomeFailed}
	}
	return err
}

// print prints a matching entry.
func (f *finder) print(entry client.WalkEntry, root string) error {
	name := path.Base(path.Join(root, entry.Path))
	if f.kind != 0 && entry.Type != f.kind {
		return nil
	}
	if f.name != "" {
		if ok, _ := path.Match(f.name, name); !ok { // the pattern was validated
			return nil
		}
	}
	var err error
	switch full := path.Join(root, entry.Path); {
	case f.json:
		err = printJSON(f.std.out, describeFile(full, entry.FileInfo))
	case f.print0:
		_, err = io.WriteString(f.std.out, f.displayPath(entry)+"\x00")
	default:
		err = printLine(f.std.out, outputName(f.std.out, f.displayPath(entry)))
	}
	if err != nil {
		return &exitError{code: codeFailed, err: fmt.Errorf("failed to write to stdout: %w", err)}
	}
	return nil
}

// displayPath returns the path of an entry relative to the given argument.
func (f *finder) displayPath(entry client.WalkEntry) string {
	switch {
	case entry.Path == "":
		return f.argument
	case strings.HasSuffix(f.argument, "/"):
		return f.argument + entry.Path
	default:
		return f.argument + "/" + entry.Path
	}
}
