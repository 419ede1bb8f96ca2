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
	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	"github.com/execwire/execwire/cmd/execwire/internal/owners"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func newLsCommand(std streams) *cobra.Command {
	l := &lister{std: std}
	command := &cobra.Command{
		Use:   "ls [-l|-n|-1|--json] [-h] [-a] [-d] [-R] [PATH...]",
		Short: "List directories of a server",
		Long: `ls lists files and the content of directories, sorted by the bytes of the names;
without PATH the home directory of the server's user. At a terminal names are in
columns, and quoted if they contain control characters; elsewhere they are one per line,
unchanged.

With -l: type and mode, number of links, owner and group, size, time of modification,
name, and the target of a link. Names of owners are those of /etc/passwd and
/etc/group of the server; with -n, and for others, they are numbers. With --json each
file is an object on its own line, with the members of stat --json.

With -R each directory is followed by the directories in it, depth first, without
following links. They are read one at a time; for a large tree over a slow connection
find is faster.

The exit code is 1 if a directory could not be listed.` + globHelp + pathHelp,
		Example: `  execwire ls /srv
  execwire ls -la /srv/build
  execwire ls -R /srv/conf
  execwire ls --json /srv | jq -r 'select(.size > 1e6).path'`,
		Args: cobra.MatchAll(paths(0, unlimited), exclusive("long", "json", "single"), exclusive("numeric", "json", "single")),
	}
	f := command.Flags()
	f.BoolVarP(&l.long, "long", "l", false, "print type, mode, owner, size and time")
	f.BoolVarP(&l.numeric, "numeric", "n", false, "the same as -l, with owners by number")
	f.BoolVarP(&l.human, "human-readable", "h", false, "with -l: sizes in units of 1024")
	f.Bool("help", false, "help for ls") // without -h
	f.BoolVarP(&l.single, "single", "1", false, "one name per line")
	f.BoolVarP(&l.all, "all", "a", false, "include names that begin with a dot")
	f.BoolVarP(&l.directory, "directory", "d", false, "list directories themselves, not their content")
	f.BoolVarP(&l.recursive, "recursive", "R", false, "list directories recursively")
	f.BoolVar(&l.json, "json", false, "print JSON objects, one per line")
	onServer(command, serverUse{completes: complete.Paths, paths: everyPath, expands: true}, func(ctx context.Context, c *client.Client, arguments []string) error {
		if l.long = l.long || l.numeric; l.long && !l.numeric {
			l.owners = owners.Read(ctx, c.ReadFile)
		}
		l.ctx, l.client, l.withHeaders = ctx, c, len(arguments) > 1 || l.recursive
		return l.list(arguments)
	})
	return command
}

// lister is one run of ls.
type lister struct {
	long, numeric, human, all, single, directory, json, recursive bool // flags

	owners owners.Names // with -l

	ctx         context.Context
	client      *client.Client
	std         streams
	withHeaders bool // whether to print names of directories as headers
	printed     bool // whether anything was printed
	failed      bool // whether listing a subdirectory failed, which was reported
}

// listed is one listed file.
type listed struct {
	name, path string
	kind       execwirev1.FileType
	info       client.FileInfo // with -l and --json, and for arguments
}

// list lists arguments: first those that are not directories, as ls does.
func (l *lister) list(arguments []string) error {
	var files []listed
	var directories []string
	failed := eachPath(l.std, arguments, nil, func(name string) error {
		info, err := l.client.Lstat(l.ctx, name)
		if err == nil && info.Metadata.GetType() == execwirev1.FileType_FILE_TYPE_SYMLINK && !l.long && !l.directory {
			if followed, followErr := l.client.Stat(l.ctx, name); followErr == nil {
				info = followed
			}
		}
		switch {
		case err != nil:
			return err
		case isDirectory(info) && !l.directory:
			directories = append(directories, name)
		default:
			files = append(files, listed{name: name, path: name, info: info})
		}
		return nil
	})
	if failed != nil && !isSomeFailed(failed) {
		return failed
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
	return failed
}

// isSomeFailed reports whether err was already reported for each file.
func isSomeFailed(err error) bool {
	var exit *exitError
	return errors.As(err, &exit) && exit.code == codeSomeFailed && exit.err == nil
}

// listDirectory lists a directory, with -R recursively.
func (l *lister) listDirectory(directory string) error {
	directories, err := l.listOne(directory)
	if err != nil || !l.recursive {
		return err
	}
	err = eachPath(l.std, directories, nil, l.listDirectory)
	if isSomeFailed(err) {
		l.failed = true
		return nil
	}
	return err
}

// listOne lists a directory, and returns the paths of its subdirectories.
func (l *lister) listOne(directory string) (directories []string, err error) {
	list := l.names
	if l.long || l.json || l.recursive {
		list = l.walk // it distinguishes links from directories on every server, lists do not
	}
	files, err := list(directory)
	if err != nil {
		return nil, err
	}
	files = slices.DeleteFunc(files, func(file listed) bool { return !l.all && strings.HasPrefix(file.name, ".") })
	slices.SortFunc(files, func(a, b listed) int { return strings.Compare(a.name, b.name) })
	if l.withHeaders && !l.json {
		header := outputName(l.std.out, directory) + ":"
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

// walk lists a directory with metadata. Files removed meanwhile are omitted.
func (l *lister) walk(directory string) (files []listed, err error) {
	var failed error
	itself := uint32(0)
	options := client.WalkOptions{MaxDepth: &itself, Metadata: l.long || l.json, OnFailed: func(_ string, err error) { failed = err }}
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

// print prints files in the format of the flags.
func (l *lister) print(files []listed) error {
	l.printed = l.printed || len(files) > 0
	switch {
	case l.json:
		for _, file := range files {
			if err := printJSON(l.std.out, describeFile(file.path, file.info)); err != nil {
				return err
			}
		}
		return nil
	case l.long:
		return l.printLong(files)
	}
	lines := make([]string, len(files))
	for i, file := range files {
		lines[i] = outputName(l.std.out, file.name)
	}
	if width, _, err := term.GetSize(int(l.std.out.Fd())); err == nil && !l.single {
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
		name := outputName(l.std.out, file.name)
		if file.info.LinkTarget != "" {
			name += " -> " + outputName(l.std.out, file.info.LinkTarget)
		}
		rows[i] = []string{fmt.Sprint(m.GetLinkCount()), printable(l.owners.User(m.GetUserId())), printable(l.owners.Group(m.GetGroupId())),
			l.size(m.GetSize()), lsTime(m.GetModifyTime().AsTime(), time.Now()), modeString(m), name}
		for column := range widths {
			widths[column] = max(widths[column], len(rows[i][column]))
		}
	}
	var text strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&text, "%s %*s %-*s %-*s %*s %*s %s\n", row[5],
			widths[0], row[0], widths[1], row[1], widths[2], row[2], widths[3], row[3], widths[4], row[4], row[6])
	}
	_, err := l.std.out.WriteString(text.String())
	return err
}

func (l *lister) size(n uint64) string {
	if !l.human {
		return fmt.Sprint(n)
	}
	return strings.NewReplacer(" B", "", " ", "", "iB", "").Replace(byteCount(int64(n)))
}

// lsTime formats a time as ls does: with the year if it is more than half a year from
// now.
func lsTime(at, now time.Time) string {
	const halfYear = 365 * 24 * time.Hour / 2
	if age := now.Sub(at); age > halfYear || age < -halfYear {
		return at.Local().Format("Jan _2  2006")
	}
	return at.Local().Format("Jan _2 15:04")
}

// inColumns arranges names in as many columns as fit into the width, from top to
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
