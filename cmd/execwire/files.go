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
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	"github.com/execwire/execwire/cmd/execwire/internal/glob"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// globHelp describes patterns of commands with several paths.
const globHelp = `

In a PATH with a colon before it, as in ':/tmp/host*', *, ?, [a-z] and [!a-z] stand for
names on the server, unless a file has this very name. Other paths are taken literally.`

// pathHelp ends the help of every file command.
const pathHelp = "\n\nPATH is a path on the server. A relative one begins at the path of the current\ndirectory on this machine."

// remotePath returns an argument as an absolute path of the server. A leading colon, as
// for cp, is ignored.
func remotePath(argument string) (string, error) { return serverPath(runtime.GOOS, argument) }

// expandPaths returns arguments with those that begin with a colon and are patterns replaced
// by the paths of the server that they match.
func expandPaths(ctx context.Context, c *client.Client, arguments []string) (expanded []string) {
	for _, argument := range arguments {
		name, err := remotePath(argument)
		if err != nil || argument[0] != ':' {
			expanded = append(expanded, argument)
			continue
		}
		expanded = append(expanded, expandPath(ctx, c, argument, name)...)
	}
	return expanded
}

// expandPath returns the paths that an argument that begins with a colon matches. name is
// its path. Only what was typed is a pattern, not the current directory.
func expandPath(ctx context.Context, c *client.Client, argument, name string) []string {
	if !glob.IsPattern(argument) {
		return []string{name}
	}
	directory := "/"
	if here, err := filepath.Abs("."); err == nil && !strings.HasPrefix(argument, ":/") {
		for directory = here; directory != "/" && !strings.HasPrefix(name, directory+"/"); {
			directory = path.Dir(directory)
		}
	}
	if strings.HasSuffix(argument, "/") || strings.HasSuffix(argument, "/.") {
		name += "/"
	}
	return glob.Expand(ctx, c, directory, name)
}

// windowsSystem is the system whose paths are not those of servers.
const windowsSystem = "windows"

// serverPath is remotePath on a system, as in runtime.GOOS. Elsewhere than on Windows a
// relative path begins at the path of the current directory of this machine.
func serverPath(system, argument string) (string, error) {
	name := strings.TrimPrefix(argument, ":")
	if system == windowsSystem {
		if !strings.HasPrefix(name, "/") {
			return "", fmt.Errorf("%q is not a path of the server: on Windows, begin it with /, as in /srv/file", argument)
		}
		return path.Clean(name), nil
	}
	name, err := filepath.Abs(name)
	if err != nil {
		return "", fmt.Errorf("failed to find the current directory, at which %q begins: %w", argument, err)
	}
	return name, nil
}

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
		name, err := remotePath(argument)
		if err == nil {
			err = do(name)
		}
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
	onServer(command, serverUse{completes: complete.Paths}, func(ctx context.Context, c *client.Client, arguments []string) error {
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
