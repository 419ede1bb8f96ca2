package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type lsFlags struct {
	connect                            connectFlags
	long, all, single, directory, json bool
	recursive                          bool
}

func newLsCommand(std streams) *cobra.Command {
	var flags lsFlags
	command := &cobra.Command{
		Use:   "ls [-l|-1|--json] [-a] [-d] [-R] [PATH...]",
		Short: "List directories of a server",
		Long: `ls lists what is in directories, in the order of the bytes of the names, or a file
itself; without PATH the current directory. At a terminal names are in columns,
and quoted if they could do something to it; elsewhere they are one per line, as
they are.

With -l: type and mode, number of names, owner and group by number, size, time of
modification, name, and where a link leads. With --json every file is an object on a
line of its own, with the members that stat --json has.

With -R the directories in a directory are listed after it, each with all that is
below it before the next, without following links. They are read one at a time; find
tells a large tree that is far away sooner.

The exit code is 1 when one of the directories could not be listed.` + pathHelp,
		Example: `  execwire ls /srv
  execwire ls -la /srv/build
  execwire ls -R /srv/conf
  execwire ls --json /srv | jq -r 'select(.size > 1e6).path'`,
		Args: pathArguments(0),
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := exclusive(command, "long", "json", "single"); err != nil {
				return err
			}
			if len(arguments) == 0 {
				arguments = []string{"."}
			}
			return withServer(command.Context(), flags.connect, func(c *client.Client) error {
				l := &lister{ctx: command.Context(), client: c, flags: flags, std: std, headed: len(arguments) > 1 || flags.recursive}
				return l.list(arguments)
			})
		},
	}
	f := command.Flags()
	f.BoolVarP(&flags.long, "long", "l", false, "type, mode, owner, size and time too")
	f.BoolVarP(&flags.single, "single", "1", false, "one name per line")
	f.BoolVarP(&flags.all, "all", "a", false, "names that begin with a dot too")
	f.BoolVarP(&flags.directory, "directory", "d", false, "directories themselves, not what is in them")
	f.BoolVarP(&flags.recursive, "recursive", "R", false, "what is in directories below, too")
	f.BoolVar(&flags.json, "json", false, "print JSON objects, one per line")
	addServerFlags(command, &flags.connect)
	return command
}

// lister is one run of ls.
type lister struct {
	ctx     context.Context
	client  *client.Client
	flags   lsFlags
	std     streams
	headed  bool // whether directories are told apart by their names
	printed bool // whether something was
	failed  bool // whether a directory below an argument was not listed, which was told
}

// listed is one file of a list.
type listed struct {
	name, path string
	kind       execwirev1.FileType
	info       client.FileInfo // of -l and --json, and of arguments
}

// list lists arguments: first those that are no directories, as ls does.
func (l *lister) list(arguments []string) error {
	var files []listed
	var directories []string
	told := eachPath(l.std, arguments, nil, func(name string) error {
		info, err := l.client.Lstat(l.ctx, name)
		if err == nil && info.Metadata.GetType() == execwirev1.FileType_FILE_TYPE_SYMLINK && !l.flags.long && !l.flags.directory {
			if followed, followErr := l.client.Stat(l.ctx, name); followErr == nil {
				info = followed
			}
		}
		switch {
		case err != nil:
			return err
		case info.Metadata.GetType() == execwirev1.FileType_FILE_TYPE_DIRECTORY && !l.flags.directory:
			directories = append(directories, name)
		default:
			files = append(files, listed{name: name, path: name, info: info})
		}
		return nil
	})
	if told != nil && !isSomeFailed(told) {
		return told
	}
	if err := l.print(files); err != nil {
		return err
	}
	slices.Sort(directories)
	if err := eachPath(l.std, directories, nil, l.listDirectory); err != nil {
		return err
	}
	if l.failed {
		return &exitError{code: codeSomeFailed}
	}
	return told
}

// isSomeFailed is whether err was told already, file by file.
func isSomeFailed(err error) bool {
	var exit *exitError
	return errors.As(err, &exit) && exit.code == codeSomeFailed && exit.err == nil
}

// listDirectory lists a directory, and with -R those in it.
func (l *lister) listDirectory(directory string) error {
	directories, err := l.listOne(directory)
	if err != nil || !l.flags.recursive {
		return err
	}
	err = eachPath(l.std, directories, nil, l.listDirectory)
	if isSomeFailed(err) {
		l.failed = true
		return nil
	}
	return err
}

// listOne lists a directory, and returns the paths of those in it.
func (l *lister) listOne(directory string) (directories []string, err error) {
	list := l.names
	if l.flags.long || l.flags.json || l.flags.recursive {
		list = l.walk // which tells links from directories with servers, too, whose lists do not
	}
	files, err := list(directory)
	if err != nil {
		return nil, err
	}
	files = slices.DeleteFunc(files, func(file listed) bool { return !l.flags.all && strings.HasPrefix(file.name, ".") })
	slices.SortFunc(files, func(a, b listed) int { return strings.Compare(a.name, b.name) })
	if l.headed && !l.flags.json {
		header := nameFor(l.std.out, directory) + ":"
		if l.printed {
			header = "\n" + header
		}
		if err := printLine(l.std.out, header); err != nil {
			return nil, err
		}
		l.printed = true
	}
	for _, file := range files {
		if file.kind == execwirev1.FileType_FILE_TYPE_DIRECTORY {
			directories = append(directories, file.path)
		}
	}
	return directories, l.print(files)
}

// names lists a directory.
func (l *lister) names(directory string) (files []listed, err error) {
	entries, err := l.client.ReadDir(l.ctx, directory)
	for _, entry := range entries {
		files = append(files, listed{name: entry.Name, path: path.Join(directory, entry.Name), kind: entry.Type})
	}
	return files, err
}

// walk lists a directory, with the metadata of what is in it where it is printed. A
// file that is gone by the time that it is looked at is left out.
func (l *lister) walk(directory string) (files []listed, err error) {
	var failed error
	itself := uint32(0)
	options := client.WalkOptions{MaxDepth: &itself, Metadata: l.flags.long || l.flags.json, OnFailed: func(_ string, err error) { failed = err }}
	err = l.client.Walk(l.ctx, directory, options, func(entry client.WalkEntry) error {
		file := listed{name: entry.Path, path: path.Join(directory, entry.Path), kind: entry.Type, info: entry.FileInfo}
		if entry.Metadata == nil && options.Metadata {
			var err error
			switch file.info, err = l.client.Lstat(l.ctx, file.path); {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			}
		}
		files = append(files, file)
		return nil
	})
	if err == nil && failed != nil {
		err = &refusedFile{path: directory, why: failed.Error()}
	}
	return files, err
}

// print prints files in the form that the flags ask for.
func (l *lister) print(files []listed) error {
	l.printed = l.printed || len(files) > 0
	switch {
	case l.flags.json:
		for _, file := range files {
			if err := printJSON(l.std.out, describeFile(file.path, file.info)); err != nil {
				return err
			}
		}
		return nil
	case l.flags.long:
		return l.printLong(files)
	}
	lines := make([]string, len(files))
	for i, file := range files {
		lines[i] = nameFor(l.std.out, file.name)
	}
	if width, _, err := term.GetSize(int(l.std.out.Fd())); err == nil && !l.flags.single {
		lines = inColumns(lines, width)
	}
	if len(lines) == 0 {
		return nil
	}
	return printLine(l.std.out, strings.Join(lines, "\n"))
}

func (l *lister) printLong(files []listed) error {
	rows := make([][]string, len(files))
	widths := make([]int, 5)
	for i, file := range files {
		m := file.info.Metadata
		name := nameFor(l.std.out, file.name)
		if file.info.LinkTarget != "" {
			name += " -> " + nameFor(l.std.out, file.info.LinkTarget)
		}
		rows[i] = []string{fmt.Sprint(m.GetLinkCount()), fmt.Sprint(m.GetUserId()), fmt.Sprint(m.GetGroupId()),
			fmt.Sprint(m.GetSize()), lsTime(m.GetModifyTime().AsTime(), time.Now()), modeString(m), name}
		for column := range widths {
			widths[column] = max(widths[column], len(rows[i][column]))
		}
	}
	var text strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&text, "%s %*s %*s %*s %*s %*s %s\n", row[5],
			widths[0], row[0], widths[1], row[1], widths[2], row[2], widths[3], row[3], widths[4], row[4], row[6])
	}
	_, err := l.std.out.WriteString(text.String())
	return err
}

// lsTime is a time as ls writes it: with the year if it is not within half one of
// now.
func lsTime(at, now time.Time) string {
	const halfYear = 365 * 24 * time.Hour / 2
	if age := now.Sub(at); age > halfYear || age < -halfYear {
		return at.Local().Format("Jan _2  2006")
	}
	return at.Local().Format("Jan _2 15:04")
}

// inColumns puts names into as many columns as fit into the width, from top to
// bottom, and returns the lines.
func inColumns(names []string, width int) []string {
	const gap = 2
	for rows := 1; rows < len(names); rows += 1 + rows/16 {
		var widths []int
		for first := 0; first < len(names); first += rows {
			widest := 0
			for _, name := range names[first:min(first+rows, len(names))] {
				widest = max(widest, len([]rune(name)))
			}
			widths = append(widths, widest+gap)
		}
		total := -gap
		for _, w := range widths {
			total += w
		}
		if total > width {
			continue
		}
		lines := make([]string, rows)
		for i, name := range names {
			if i+rows < len(names) {
				name += strings.Repeat(" ", widths[i/rows]-len([]rune(name)))
			}
			lines[i%rows] += name
		}
		return lines
	}
	return names
}
