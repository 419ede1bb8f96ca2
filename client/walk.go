package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
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
