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
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type findFlags struct {
	connect      connectFlags
	name, kind   string
	maxDepth     uint32
	hasDepth     bool
	ignore       []string
	print0, json bool
}

// findWords are the flags of find that are written with one dash by habit.
var findWords = []string{"name", "type", "maxdepth", "print0", "ignore", "json"}

// longFlags gives flags of find that are written with one dash their second one.
func longFlags(arguments []string) []string {
	if len(arguments) == 0 || arguments[0] != "find" {
		return arguments
	}
	long := []string{"find"}
	for i, argument := range arguments[1:] {
		if argument == "--" {
			return append(long, arguments[1+i:]...)
		}
		for _, word := range findWords {
			if rest, ok := strings.CutPrefix(argument, "-"+word); ok && (rest == "" || rest[0] == '=') {
				argument = "-" + argument
			}
		}
		long = append(long, argument)
	}
	return long
}

func newFindCommand(std streams) *cobra.Command {
	var flags findFlags
	command := &cobra.Command{
		Use:   "find [PATH] [-name PATTERN] [-type f|d|l] [-maxdepth N] [-ignore PATTERN]... [-print0|-json]",
		Short: "List all that is below a directory of a server",
		Long: `find lists what is below a directory, and the directory itself, a level after the
other; without PATH the current directory. Links are not followed but for PATH.

-name takes what has a name like the pattern, in which * stands for any characters, ?
for one and [a-z] for one of those. -type takes files, directories, links, and with
p, s, c and b FIFOs, sockets and devices. -ignore leaves out, with all that is below,
what a line of .gitignore would: a name at any depth, or a path if there is a slash
in it.

With -json every file is an object on a line of its own, with the members that stat
--json has. The flags of find may begin with one dash or two.

The exit code is 1 when a directory could not be read, or PATH is not there.` + pathHelp,
		Example: `  execwire find /srv -name '*.log' -type f
  execwire find -maxdepth 2 -ignore node_modules
  execwire find /srv/cache -type f -print0 | xargs -0 execwire rm`,
		Args: func(command *cobra.Command, arguments []string) error {
			if len(arguments) > 1 {
				return usageError(command, fmt.Errorf("unexpected argument %q", arguments[1]))
			}
			return pathArguments(0)(command, arguments)
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := exclusive(command, "print0", "json"); err != nil {
				return err
			}
			flags.hasDepth = command.Flags().Changed("maxdepth")
			f, err := newFinder(flags, std)
			if err != nil {
				return usageError(command, err)
			}
			if len(arguments) == 0 {
				arguments = []string{"."}
			}
			f.argument = cmp.Or(strings.TrimPrefix(arguments[0], ":"), ".")
			return withServer(command.Context(), flags.connect, func(c *client.Client) error {
				f.client = c
				return eachPath(std, arguments, nil, func(name string) error { return f.find(command.Context(), name) })
			})
		},
	}
	f := command.Flags()
	f.StringVar(&flags.name, "name", "", "names like this `pattern` only")
	f.StringVar(&flags.kind, "type", "", "files of this `type` only: f, d, l, p, s, c or b")
	f.Uint32Var(&flags.maxDepth, "maxdepth", 0, "go down so many `levels`; 0 is PATH alone (default all)")
	f.StringArrayVar(&flags.ignore, "ignore", nil, "leave out what is like this `pattern`; more than once for more")
	f.BoolVar(&flags.print0, "print0", false, "end names with a NUL in place of a new line, for xargs -0")
	f.BoolVar(&flags.json, "json", false, "print JSON objects, one per line")
	addServerFlags(command, &flags.connect)
	return command
}

// typeOfLetter are the types of -type.
var typeOfLetter = map[string]execwirev1.FileType{
	"f": execwirev1.FileType_FILE_TYPE_REGULAR,
	"d": execwirev1.FileType_FILE_TYPE_DIRECTORY,
	"l": execwirev1.FileType_FILE_TYPE_SYMLINK,
	"p": execwirev1.FileType_FILE_TYPE_FIFO,
	"s": execwirev1.FileType_FILE_TYPE_SOCKET,
	"c": execwirev1.FileType_FILE_TYPE_CHARACTER_DEVICE,
	"b": execwirev1.FileType_FILE_TYPE_BLOCK_DEVICE,
}

// finder is one run of find.
type finder struct {
	client   *client.Client
	flags    findFlags
	std      streams
	argument string // as it was written, which names begin with
	kind     execwirev1.FileType
}

func newFinder(flags findFlags, std streams) (*finder, error) {
	f := &finder{flags: flags, std: std}
	if flags.kind != "" {
		if f.kind = typeOfLetter[flags.kind]; f.kind == 0 {
			return nil, fmt.Errorf("-type is %q: use f, d, l, p, s, c or b", flags.kind)
		}
	}
	if _, err := path.Match(flags.name, ""); err != nil {
		return nil, fmt.Errorf("-name is %q: %w", flags.name, err)
	}
	return f, nil
}

// find lists what is below a path, and the path.
func (f *finder) find(ctx context.Context, root string) error {
	info, err := f.client.Stat(ctx, root)
	if err != nil {
		return err
	}
	if err := f.print(client.WalkEntry{FileInfo: info, Type: info.Metadata.GetType()}, root); err != nil {
		return err
	}
	if info.Metadata.GetType() != execwirev1.FileType_FILE_TYPE_DIRECTORY || f.flags.hasDepth && f.flags.maxDepth == 0 {
		return nil
	}
	options := client.WalkOptions{Ignore: f.flags.ignore, Metadata: f.flags.json}
	if f.flags.hasDepth {
		depth := f.flags.maxDepth - 1
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

// print prints an entry if it is looked for.
func (f *finder) print(entry client.WalkEntry, root string) error {
	name := path.Base(path.Join(root, entry.Path))
	if f.kind != 0 && entry.Type != f.kind {
		return nil
	}
	if f.flags.name != "" {
		if ok, _ := path.Match(f.flags.name, name); !ok { // a bad pattern is refused before
			return nil
		}
	}
	var err error
	switch full := path.Join(root, entry.Path); {
	case f.flags.json:
		err = printJSON(f.std.out, describeFile(full, entry.FileInfo))
	case f.flags.print0:
		_, err = io.WriteString(f.std.out, f.written(entry)+"\x00")
	default:
		err = printLine(f.std.out, nameFor(f.std.out, f.written(entry)))
	}
	if err != nil {
		return &exitError{code: codeFailed, err: fmt.Errorf("failed to write to stdout: %w", err)}
	}
	return nil
}

// written is the path of an entry as it begins in the argument.
func (f *finder) written(entry client.WalkEntry) string {
	switch {
	case entry.Path == "":
		return f.argument
	case strings.HasSuffix(f.argument, "/"):
		return f.argument + entry.Path
	default:
		return f.argument + "/" + entry.Path
	}
}
