package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// pathHelp ends the help of every command that is about files of a server.
const pathHelp = "\n\nPATH is one of the server's machine. One that is not absolute begins at the path\nof the current directory here, as the directory of run does."

// pathArguments wants paths, at least so many.
func pathArguments(least int) cobra.PositionalArgs {
	return func(command *cobra.Command, arguments []string) error {
		if len(arguments) < least {
			return usageError(command, errors.New("name a path"))
		}
		for _, argument := range arguments {
			if argument == "" {
				return usageError(command, errors.New("a path is empty"))
			}
		}
		return nil
	}
}

// remotePath is an argument as an absolute path of the server. A colon before it,
// as cp wants it, means nothing.
func remotePath(argument string) (string, error) {
	name := strings.TrimPrefix(argument, ":")
	if path.IsAbs(name) {
		return path.Clean(name), nil
	}
	here, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("failed to find the current directory, at which %q begins: %w", argument, err)
	}
	return filepath.Join(here, name), nil
}

// eachPath does something with every path of arguments. What fails is told, and
// the rest still done, unless the server is gone.
func eachPath(std streams, arguments []string, hints map[execwirev1.ErrorReason]string, do func(name string) error) error {
	failed := false
	for _, argument := range arguments {
		name, err := remotePath(argument)
		if err == nil {
			err = do(name)
		}
		if err == nil {
			continue
		}
		explained := explainFile(err, hints)
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

// isFatal is whether err is about more than one file.
func isFatal(err error) bool {
	var answer *client.Error
	var exit *exitError
	switch err = client.FromRPC(err); {
	case errors.As(err, &exit):
		return true
	case !errors.As(err, &answer):
		return !isAbout(err)
	}
	return answer.IsAboutServer()
}

// isAbout is whether an error of this machine is about a file.
func isAbout(err error) bool {
	var file *fs.PathError
	var link *os.LinkError
	var refused *refusedFile
	return errors.As(err, &file) && file.Path != os.Stdout.Name() || errors.As(err, &link) || errors.As(err, &refused)
}

// refusedFile is what a command does not do with a file.
type refusedFile struct {
	path, why, hint string
}

func (e *refusedFile) Error() string { return shown(e.path) + ": " + e.why }

// explainFile says what to do about an error about a file.
func explainFile(err error, hints map[execwirev1.ErrorReason]string) *exitError {
	var exit *exitError
	if errors.As(err, &exit) {
		return exit
	}
	err = client.FromRPC(err)
	explained := &exitError{code: codeFailed, err: err, hint: hints[client.Reason(err)]}
	var refused *refusedFile
	if errors.As(err, &refused) {
		explained.hint = refused.hint
	}
	if explained.hint == "" {
		explained.hint = doorHint(err)
	}
	return explained
}

// nameFor is a name as out takes it: raw, and so that it does nothing to a
// terminal.
func nameFor(out *os.File, name string) string {
	if term.IsTerminal(int(out.Fd())) {
		return shown(name)
	}
	return name
}

// fileObject is a file, as --json prints it.
type fileObject struct {
	Path string `json:"path"`
	// RawPath is the path if it is not UTF-8.
	RawPath    []byte     `json:"raw_path,omitempty"`
	Type       string     `json:"type"`
	Size       uint64     `json:"size"`
	Mode       string     `json:"mode"`
	UserID     uint32     `json:"user_id"`
	GroupID    uint32     `json:"group_id"`
	LinkCount  uint64     `json:"link_count"`
	ModifyTime *time.Time `json:"modify_time,omitempty"`
	AccessTime *time.Time `json:"access_time,omitempty"`
	ChangeTime *time.Time `json:"change_time,omitempty"`
	BirthTime  *time.Time `json:"birth_time,omitempty"`
	LinkTarget string     `json:"link_target,omitempty"`
	// RawLinkTarget is the target if it is not UTF-8.
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

// textOf is a name as text, and its bytes if the text is not all.
func textOf(name string) (text string, raw []byte) {
	if utf8.ValidString(name) {
		return name, nil
	}
	return strings.ToValidUTF8(name, string(utf8.RuneError)), []byte(name)
}

func timeOf(t interface {
	IsValid() bool
	AsTime() time.Time
}) *time.Time {
	if !t.IsValid() {
		return nil
	}
	at := t.AsTime()
	return &at
}

func typeWord(t execwirev1.FileType) string { return enumWord(t, "FILE_TYPE_") }

// typeLetters are how ls writes types.
var typeLetters = map[execwirev1.FileType]byte{
	execwirev1.FileType_FILE_TYPE_REGULAR:          '-',
	execwirev1.FileType_FILE_TYPE_DIRECTORY:        'd',
	execwirev1.FileType_FILE_TYPE_SYMLINK:          'l',
	execwirev1.FileType_FILE_TYPE_FIFO:             'p',
	execwirev1.FileType_FILE_TYPE_SOCKET:           's',
	execwirev1.FileType_FILE_TYPE_CHARACTER_DEVICE: 'c',
	execwirev1.FileType_FILE_TYPE_BLOCK_DEVICE:     'b',
}

// modeString is type and mode as ls writes them.
func modeString(m *execwirev1.FileMetadata) string {
	text := []byte("?rwxrwxrwx")
	if letter, ok := typeLetters[m.GetType()]; ok {
		text[0] = letter
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

// printLine prints a line.
func printLine(out io.Writer, line string) error {
	_, err := io.WriteString(out, line+"\n")
	return err
}

// notNegative refuses flags with a number below 0.
func notNegative(command *cobra.Command, names ...string) error {
	for _, name := range names {
		if text := command.Flags().Lookup(name).Value.String(); strings.HasPrefix(text, "-") {
			return usageError(command, fmt.Errorf("--%s is %s: it cannot be negative", name, text))
		}
	}
	return nil
}
