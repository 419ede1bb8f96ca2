package client

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/gitignore"
)

// WalkOptions select what of a tree to return. The zero value is everything.
type WalkOptions struct {
	// MaxDepth limits the depth; 0 reads the directory itself only, nil has no limit.
	MaxDepth *uint32
	// Ignore are patterns in .gitignore notation of entries to skip, with everything
	// below.
	Ignore []string
	// Metadata adds metadata and link targets to the entries.
	Metadata bool
	// OnFailed is called for directories that could not be read, with their path
	// relative to the root, which is "".
	OnFailed func(path string, err error)
}

// WalkEntry is an entry below a directory.
type WalkEntry struct {
	// FileInfo is empty unless metadata was requested and available.
	FileInfo
	// Path is relative to the walked directory, in the bytes of the server. No part of
	// it is "", "." or "..".
	Path string
	// Type is its type.
	Type execwirev1.FileType
}

// Walk returns everything below a directory, level by level; links are not followed.
// The callbacks are called by the caller's goroutine and block the server; an error of
// do ends the walk. A walk is not resumed after a lost connection.
//
// Errors are those of do, [*Error], [ErrTruncated] when the server stopped at its limit
// of directories, or wrap the cause of ctx.
func (c *FileClient) Walk(ctx context.Context, path string, options WalkOptions, do func(WalkEntry) error) error {
	request := &execwirev1.WalkDirectoryRequest{MaxDepth: options.MaxDepth, Ignore: options.Ignore, WantMetadata: options.Metadata}
	request.Path, request.RawPath = pathFields(path)
	ended, truncated := false, false
	err := receiveAll(ctx, c.files.WalkDirectory, request, func(message *execwirev1.WalkDirectoryResponse) error {
		for _, e := range message.GetEntries().GetEntries() {
			entry := WalkEntry{Path: bytesOf(e.GetPath(), e.GetRawPath()), Type: e.GetType()}
			entry.Metadata, entry.LinkTarget = e.GetMetadata(), bytesOf(e.GetLinkTarget(), e.GetRawLinkTarget())
			for part := range strings.SplitSeq(entry.Path, "/") {
				if !isName(part) {
					return fmt.Errorf("failed to walk %s: the server broke the contract: %q is not a path below it", path, entry.Path)
				}
			}
			if err := do(entry); err != nil {
				return err
			}
		}
		if failed := message.GetError(); failed != nil && options.OnFailed != nil {
			options.OnFailed(bytesOf(failed.GetPath(), failed.GetRawPath()), errors.New(failed.GetMessage()))
		}
		ended = ended || message.GetEnd() != nil
		truncated = truncated || message.GetEnd().GetTruncated()
		return nil
	})
	switch {
	case err != nil:
		return err
	case !ended:
		return fmt.Errorf("failed to walk %s: the server broke the contract: the stream ended without an end message", path)
	case truncated:
		return ErrTruncated
	}
	return nil
}

// Glob returns the paths that match an absolute pattern, sorted by their bytes, as a shell
// expands it: "*" stands for any characters of a name, "?" for one, "[a-z]" for one of those
// and "[!a-z]" for another; a backslash makes the next character ordinary. "**" as a whole
// name stands for any directories, also none, and at the end for everything below; it
// follows no links. Names that begin with a dot match only a name that does. A pattern that
// ends with a slash matches directories, and links to them. Without a wildcard it is the
// path itself, if that exists.
//
// It makes a call for each directory that it reads. One that does not exist or cannot be
// read has no matches. Errors are those of [FileClient.ReadDir] and [FileClient.Walk], or say what
// is wrong with the pattern.
func (c *FileClient) Glob(ctx context.Context, pattern string) ([]string, error) {
	parts, err := parseGlob(pattern)
	if err != nil {
		return nil, err
	}
	found := []string{"/"}
	for i, part := range parts {
		onlyDirectories := i < len(parts)-1 || strings.HasSuffix(pattern, "/")
		var next []string
		for _, directory := range found {
			matches, err := c.globPart(ctx, directory, part, onlyDirectories, i == len(parts)-1)
			switch Reason(err) {
			case execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND, execwirev1.ErrorReason_ERROR_REASON_NOT_A_DIRECTORY,
				execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED:
				continue
			}
			if err != nil {
				return nil, err
			}
			next = append(next, matches...)
		}
		found = next
	}
	slices.Sort(found)
	return slices.Compact(found), nil // two "**" find a path twice
}

// globPart is a name of a pattern of Glob.
type globPart struct {
	text    string            // without backslashes if it is literal
	literal bool              // it has no wildcard
	pattern gitignore.Pattern // unless it is literal
}

func parseGlob(pattern string) (parts []globPart, err error) {
	if !path.IsAbs(pattern) {
		return nil, fmt.Errorf("the pattern %q is not absolute: begin with /", pattern)
	}
	for text := range strings.SplitSeq(pattern, "/") {
		if text == "" {
			continue
		}
		part := globPart{text: text}
		if bare, isLiteral := literalPart(text); isLiteral {
			part = globPart{text: bare, literal: true}
		} else if part.pattern, err = gitignore.Parse("/" + text); err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// literalPart returns a name of a pattern without its backslashes, if it has no wildcard.
func literalPart(text string) (literal string, ok bool) {
	var bare []byte
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '*', '?', '[':
			return "", false
		case '\\':
			if i++; i == len(text) {
				return "", false
			}
		}
		bare = append(bare, text[i])
	}
	return string(bare), true
}

// globPart returns the paths that match part below a directory. That of a literal part is
// checked only if it is the last.
func (c *FileClient) globPart(ctx context.Context, directory string, part globPart, onlyDirectories, isLast bool) (matches []string, err error) {
	prefix := strings.TrimSuffix(directory, "/") + "/"
	isHidden := func(name string) bool { return strings.HasPrefix(name, ".") && !strings.HasPrefix(part.text, ".") }
	switch {
	case part.literal && !isLast:
		return []string{prefix + part.text}, nil
	case part.literal:
		describe := c.Lstat
		if onlyDirectories {
			describe = c.Stat
		}
		info, err := describe(ctx, prefix+part.text)
		if err == nil && (!onlyDirectories || info.Metadata.GetType() == execwirev1.FileType_FILE_TYPE_DIRECTORY) {
			matches = []string{prefix + part.text}
		}
		return matches, err
	case part.text == "**":
		if !isLast {
			matches = []string{directory}
		}
		err := c.Walk(ctx, directory, WalkOptions{}, func(e WalkEntry) error {
			if (!onlyDirectories || e.Type == execwirev1.FileType_FILE_TYPE_DIRECTORY) && !slices.ContainsFunc(strings.Split(e.Path, "/"), isHidden) {
				matches = append(matches, prefix+e.Path)
			}
			return nil
		})
		return matches, err
	}
	entries, err := c.ReadDir(ctx, directory)
	for _, e := range entries {
		isDirectory := e.Type == execwirev1.FileType_FILE_TYPE_DIRECTORY || e.TargetType == execwirev1.FileType_FILE_TYPE_DIRECTORY
		if (!onlyDirectories || isDirectory) && !isHidden(e.Name) && part.pattern.Match(e.Name, isDirectory) {
			matches = append(matches, prefix+e.Name)
		}
	}
	return matches, err
}

// ErrTruncated is returned by [FileClient.Walk] when the walk is incomplete.
var ErrTruncated = errors.New("there are more directories than the server reads at once: walk a part at a time")

// WatchOptions configure a watch. The zero value watches the entries of a directory.
type WatchOptions struct {
	// Recursive includes everything below.
	Recursive bool
	// Ignore are patterns of entries to skip, in .gitignore notation.
	Ignore []string
	// Settle is how long there must be no change before changes are sent; 0 sends them
	// at once, nil is the default of the server, 50 ms.
	Settle *time.Duration
}

// WatchEvent is an event of a watch.
type WatchEvent struct {
	// Started is whether this is the first event: later changes are reported.
	Started bool
	// Changes are the changes, one for each path.
	Changes []WatchChange
	// Overflow is whether changes were lost: the caller must rescan everything.
	Overflow bool
	// Lost is a directory that is no longer watched, or nil.
	Lost *WatchLost
}

// WatchChange is a change of a path.
type WatchChange struct {
	// Path is relative to the watched directory, in the bytes of the server.
	Path string
	// Kind is the kind of the change.
	Kind execwirev1.WatchChangeKind
	// Type is the type of the path now; unspecified if it does not exist.
	Type execwirev1.FileType
}

// WatchLost is a directory that is no longer watched, with everything below it.
type WatchLost struct {
	// Path is relative to the watched directory; "" is that directory.
	Path string
	// Reason is the cause, and Message describes it.
	Reason  execwirev1.WatchLostReason
	Message string
}

// Watch calls do for changes in a directory until ctx is done, the directory is gone,
// or do fails. do is called by the caller's goroutine; while it runs, the server
// collects changes, up to an overflow. Changes during a lost connection are unknown, so
// Watch fails: start a new watch and rescan.
//
// Errors are those of do, [*Error], or wrap the cause of ctx.
func (c *FileClient) Watch(ctx context.Context, path string, options WatchOptions, do func(WatchEvent) error) error {
	request := &execwirev1.WatchDirectoryRequest{Recursive: options.Recursive, Ignore: options.Ignore}
	request.Path, request.RawPath = pathFields(path)
	if options.Settle != nil {
		request.Settle = durationpb.New(*options.Settle)
	}
	err := receiveAll(ctx, c.files.WatchDirectory, request, func(message *execwirev1.WatchDirectoryResponse) error {
		return do(watchEvent(message))
	})
	if err == nil {
		err = fmt.Errorf("failed to watch %s: the server broke the contract: it ended the watch without a reason", path)
	}
	return err
}

func watchEvent(message *execwirev1.WatchDirectoryResponse) WatchEvent {
	event := WatchEvent{Started: message.GetStarted() != nil, Overflow: message.GetOverflow() != nil}
	for _, change := range message.GetChanges().GetChanges() {
		event.Changes = append(event.Changes, WatchChange{
			Path: bytesOf(change.GetPath(), change.GetRawPath()), Kind: change.GetKind(), Type: change.GetType()})
	}
	if lost := message.GetLost(); lost != nil {
		event.Lost = &WatchLost{
			Path: bytesOf(lost.GetPath(), lost.GetRawPath()), Reason: lost.GetReason(), Message: lost.GetMessage()}
	}
	return event
}
