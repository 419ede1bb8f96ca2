package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// globHelp describes patterns of commands with several paths.
const globHelp = `

In a PATH with a colon before it, as in ':/tmp/host*', *, ?, [a-z] and [!a-z] stand for
names on the server, unless a file has this very name. Other paths are taken literally.`

// pathHelp ends the help of every file command.
const pathHelp = "\n\nPATH is a path on the server. A relative one begins where run starts a process: at the\nhome directory of the server's user."

// pathArguments tells whether an argument of a command, by its index, is a path of the server.
type pathArguments func(i int, argument string) bool

// Every argument, all but the first, and those that begin with a colon.
func everyPath(int, string) bool             { return true }
func pathsAfterFirst(i int, _ string) bool   { return i > 0 }
func colonPaths(_ int, argument string) bool { return strings.HasPrefix(argument, ":") }

// absolutePaths returns arguments with their relative paths of a server made absolute. They
// begin at the home directory of the server's user, or at / if it has none, as processes do;
// for a server inside this program at the current directory. Colons, and slashes and dots at
// the end, stay. It asks the server only if there is a relative path; otherwise base, at which
// they begin, is empty.
func absolutePaths(ctx context.Context, c *client.Client, server string, arguments []string, isPath pathArguments) (absolute []string, base string, err error) {
	absolute = slices.Clone(arguments)
	for i, argument := range arguments {
		name := strings.TrimPrefix(argument, ":")
		if !isPath(i, argument) || path.IsAbs(name) {
			continue
		}
		if isForeignPath(runtime.GOOS, name) {
			return nil, "", fmt.Errorf("%q is not a path of the server: on Windows, begin it with /, as in /srv/file", argument)
		}
		if base == "" {
			if base, err = baseDirectory(ctx, c, server); err != nil {
				return nil, "", fmt.Errorf("failed to find the directory at which %q begins, so give an absolute path: %w", argument, err)
			}
		}
		absolute[i] = strings.TrimSuffix(argument, name) + base + "/" + name
	}
	return absolute, base, nil
}

// remoteDirectory is absolutePaths and remotePath for one argument and a server elsewhere.
func remoteDirectory(ctx context.Context, c *client.Client, argument string) (string, error) {
	absolute, _, err := absolutePaths(ctx, c, "", []string{argument}, everyPath)
	if err != nil {
		return "", err
	}
	return remotePath(absolute[0]), nil
}

func baseDirectory(ctx context.Context, c *client.Client, server string) (string, error) {
	if server == localURL {
		return os.Getwd()
	}
	environment, err := c.Describe(ctx)
	if err != nil {
		return "", err
	}
	home := environment.GetHomeDirectory()
	if !path.IsAbs(home) {
		return "/", nil
	}
	switch info, err := c.Stat(ctx, home); {
	case err != nil && isFatal(err):
		return "", err
	case err != nil || !isDirectory(info):
		return "/", nil
	}
	return home, nil
}

// isForeignPath reports whether a relative path is one of this machine with a system, as in
// runtime.GOOS, and not of a server.
func isForeignPath(system, name string) bool {
	return system == windowsSystem && strings.ContainsAny(name, `\:`)
}

// remotePath returns a path of absolutePaths without its colon, in its shortest form.
func remotePath(argument string) string { return path.Clean(strings.TrimPrefix(argument, ":")) }

// expandPaths returns arguments with those that begin with a colon and are patterns replaced
// by the paths of the server that they match. base is that of absolutePaths.
func expandPaths(ctx context.Context, c *client.Client, base string, arguments []string) (expanded []string) {
	for _, argument := range arguments {
		if argument[0] != ':' {
			expanded = append(expanded, argument)
			continue
		}
		expanded = append(expanded, expandPath(ctx, c, base, argument, remotePath(argument))...)
	}
	return expanded
}

// expandPath returns the paths that an argument that begins with a colon matches. name is
// its path. Only what was typed is a pattern, not base.
func expandPath(ctx context.Context, c *client.Client, base, argument, name string) []string {
	if !strings.ContainsAny(argument, "*?[") {
		return []string{name}
	}
	if _, err := c.Lstat(ctx, name); err == nil {
		return []string{name} // a file has this very name
	}
	directory := "/"
	if base != "" && strings.HasPrefix(argument, ":"+base+"/") {
		for directory = path.Clean(base); directory != "/" && !strings.HasPrefix(name, directory+"/"); {
			directory = path.Dir(directory)
		}
	}
	var pattern strings.Builder
	for _, b := range []byte(directory) {
		if b != '/' {
			pattern.WriteByte('\\')
		}
		pattern.WriteByte(b)
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(name, directory), "/") {
		if part == "**" { // of a single name, as in shells
			part = "*"
		}
		pattern.WriteString("/" + part)
	}
	if strings.HasSuffix(argument, "/") || strings.HasSuffix(argument, "/.") {
		pattern.WriteString("/")
	}
	// Without matches, also after an error, a call for the pattern itself says why.
	if matches, err := c.Glob(ctx, pattern.String()); err == nil && len(matches) > 0 {
		return matches
	}
	return []string{name}
}

// windowsSystem is the system whose paths are not those of servers.
const windowsSystem = "windows"

// splitLocal returns the last element of a local path, empty after a separator, and whether
// the path is the root of the file system or of a drive.
func splitLocal(system, name string) (base string, root bool) {
	separators, rest := "/", name
	if system == windowsSystem {
		separators = `/\`
		if len(name) >= 2 && name[1] == ':' {
			rest = name[2:]
		}
	}
	return rest[strings.LastIndexAny(rest, separators)+1:], strings.Trim(rest, separators) == ""
}

// eachPath calls do with every path of arguments. It reports errors and continues,
// unless the server is lost.
func eachPath(std streams, arguments []string, hints reasonHints, do func(name string) error) error {
	failed := false
	for _, argument := range arguments {
		err := do(remotePath(argument))
		if err == nil {
			continue
		}
		explained := explain(err, hints)
		if isFatal(err) {
			return explained
		}
		failed = true
		report(std.err, explained)
	}
	if failed {
		return &exitError{code: codeSomeFailed}
	}
	return nil
}

// isFatal reports whether err concerns more than one file.
func isFatal(err error) bool {
	var answer *client.Error
	var exit *exitError
	switch err = client.FromRPC(err); {
	case errors.As(err, &exit):
		return true
	case !errors.As(err, &answer):
		return !isFileError(err)
	}
	return answer.IsAboutServer()
}

// isFileError reports whether a local error concerns a file.
func isFileError(err error) bool {
	var file *fs.PathError
	var link *os.LinkError
	var refused *refusedFile
	return errors.As(err, &file) && file.Path != os.Stdout.Name() || errors.As(err, &link) || errors.As(err, &refused)
}

// fileObject is the JSON output for a file.
type fileObject struct {
	Path string `json:"path"`
	// RawPath is set if the path is not UTF-8.
	RawPath    []byte    `json:"raw_path,omitempty"`
	Type       string    `json:"type"`
	Size       uint64    `json:"size"`
	Mode       string    `json:"mode"`
	UserID     uint32    `json:"user_id"`
	GroupID    uint32    `json:"group_id"`
	LinkCount  uint64    `json:"link_count"`
	ModifyTime time.Time `json:"modify_time,omitzero"`
	AccessTime time.Time `json:"access_time,omitzero"`
	ChangeTime time.Time `json:"change_time,omitzero"`
	BirthTime  time.Time `json:"birth_time,omitzero"`
	LinkTarget string    `json:"link_target,omitempty"`
	// RawLinkTarget is set if the target is not UTF-8.
	RawLinkTarget []byte `json:"raw_link_target,omitempty"`
	SHA256        string `json:"sha256,omitempty"`
}

func describeFile(name string, info client.FileInfo) fileObject {
	m := info.Metadata
	object := fileObject{
		Type: typeWord(m.GetType()), Size: m.GetSize(), Mode: fmt.Sprintf("%04o", m.GetMode()),
		UserID: m.GetUserId(), GroupID: m.GetGroupId(), LinkCount: m.GetLinkCount(),
		ModifyTime: timeOf(m.GetModifyTime()), AccessTime: timeOf(m.GetAccessTime()),
		ChangeTime: timeOf(m.GetChangeTime()), BirthTime: timeOf(m.GetBirthTime()),
		SHA256: hex.EncodeToString(info.SHA256),
	}
	object.Path, object.RawPath = textOf(name)
	object.LinkTarget, object.RawLinkTarget = textOf(info.LinkTarget)
	return object
}

// textOf returns a name as UTF-8, and its bytes if they differ.
func textOf(name string) (text string, raw []byte) {
	if utf8.ValidString(name) {
		return name, nil
	}
	return strings.ToValidUTF8(name, string(utf8.RuneError)), []byte(name)
}

// timeOf returns a time, or zero if it is not known.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if !t.IsValid() {
		return time.Time{}
	}
	return t.AsTime()
}

func isDirectory(info client.FileInfo) bool {
	return info.Metadata.GetType() == execwirev1.FileType_FILE_TYPE_DIRECTORY
}

func typeWord(t execwirev1.FileType) string { return enumWord(t, "FILE_TYPE_") }

// typeLetters are the file types of find. Those of ls are the same, except for regular
// files.
var typeLetters = map[execwirev1.FileType]string{
	execwirev1.FileType_FILE_TYPE_REGULAR:          "f",
	execwirev1.FileType_FILE_TYPE_DIRECTORY:        "d",
	execwirev1.FileType_FILE_TYPE_SYMLINK:          "l",
	execwirev1.FileType_FILE_TYPE_FIFO:             "p",
	execwirev1.FileType_FILE_TYPE_SOCKET:           "s",
	execwirev1.FileType_FILE_TYPE_CHARACTER_DEVICE: "c",
	execwirev1.FileType_FILE_TYPE_BLOCK_DEVICE:     "b",
}

// modeString formats type and mode as ls does.
func modeString(m *execwirev1.FileMetadata) string {
	text := []byte(cmp.Or(typeLetters[m.GetType()], "?") + "rwxrwxrwx")
	if m.GetType() == execwirev1.FileType_FILE_TYPE_REGULAR {
		text[0] = '-'
	}
	for i := range 9 {
		if m.GetMode()&(1<<(8-i)) == 0 {
			text[1+i] = '-'
		}
	}
	for i, special := range []struct {
		bit      uint32
		set, not byte
	}{{0o4000, 's', 'S'}, {0o2000, 's', 'S'}, {0o1000, 't', 'T'}} {
		at := &text[3+3*i]
		switch {
		case m.GetMode()&special.bit == 0:
		case *at == 'x':
			*at = special.set
		default:
			*at = special.not
		}
	}
	return string(text)
}

func newMkdirCommand(std streams) *cobra.Command {
	var parents bool
	var mode string
	var permissions *uint32
	command := &cobra.Command{
		Use:   "mkdir [-p] [-m MODE] PATH...",
		Short: "Create directories on a server",
		Long: `mkdir creates directories.

The exit code is 1 if one of them could not be created.` + pathHelp,
		Example: `  execwire mkdir /srv/build
  execwire mkdir -p /srv/build/a/b
  execwire mkdir -m 700 /srv/keys`,
		Args: cobra.MatchAll(paths(1, unlimited), valid(func(*cobra.Command, []string) (err error) {
			permissions, err = parseMode(mode)
			return err
		})),
	}
	command.Flags().BoolVarP(&parents, "parents", "p", false, "create parent directories too; accept an existing directory")
	command.Flags().StringVarP(&mode, "mode", "m", "", "the `mode` of the directory, in octal (default that of the server)")
	onServer(command, serverUse{completes: complete.Paths, paths: everyPath}, func(ctx context.Context, c *client.Client, arguments []string) error {
		hints := reasonHints{
			execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND: "make the directories above it too with -p",
		}
		return eachPath(std, arguments, hints, func(name string) error {
			if parents {
				return c.MkdirAll(ctx, name, permissions)
			}
			return c.Mkdir(ctx, name, permissions)
		})
	})
	return command
}
