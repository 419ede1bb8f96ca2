package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// WalkOptions say what of a tree to tell. The zero value is all of it.
type WalkOptions struct {
	// MaxDepth is how deep directories are read; 0 reads the directory itself
	// alone, nil all.
	MaxDepth *uint32
	// Ignore are patterns of what is neither told nor read, in the notation of
	// .gitignore.
	Ignore []string
	// Metadata is whether entries have their metadata and where links lead.
	Metadata bool
	// OnFailed is called for directories that could not be read, with their path
	// relative to the one that is walked, which is "".
	OnFailed func(path string, err error)
}

// WalkEntry is something below a directory.
type WalkEntry struct {
	// FileInfo is empty unless metadata was asked for and could be had.
	FileInfo
	// Path is its path relative to the directory that is walked, in the bytes that
	// it has on the server. No part of it is "", "." or "..".
	Path string
	// Type is what it is.
	Type execwirev1.FileType
}

// Walk tells all that is below a directory, a level after the other, as the server
// reads it; links are told and not followed. The callbacks are called by the
// caller's goroutine, and hold the server up; an error of do ends the walk. A walk
// is not resumed after a lost connection.
//
// Errors are those of do, [*Error], [ErrTruncated] when the server has read as many
// directories as it does, or wrap the cause of ctx.
func (c *Client) Walk(ctx context.Context, path string, options WalkOptions, do func(WalkEntry) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errors.New("the walk is over"))
	request := &execwirev1.WalkDirectoryRequest{MaxDepth: options.MaxDepth, Ignore: options.Ignore, WantMetadata: options.Metadata}
	request.Path, request.RawPath = pathFields(path)
	stream, err := c.files.WalkDirectory(ctx, request)
	if err != nil {
		return answered(ctx, err)
	}
	ended, truncated := false, false
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) && !ended {
			return fmt.Errorf("failed to walk %s: the server broke the contract: it ended the walk without an end", path)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return answered(ctx, err)
		}
		for _, e := range message.GetEntries().GetEntries() {
			entry := WalkEntry{Path: bytesOf(e.GetPath(), e.GetRawPath()), Type: e.GetType()}
			entry.Metadata, entry.LinkTarget = e.GetMetadata(), bytesOf(e.GetLinkTarget(), e.GetRawLinkTarget())
			for part := range strings.SplitSeq(entry.Path, "/") {
				if !isName(part) {
					return fmt.Errorf("failed to walk %s: the server broke the contract: %q is no path below it", path, entry.Path)
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
	}
	if truncated {
		return ErrTruncated
	}
	return nil
}

// ErrTruncated is what [Client.Walk] returns when not all was told.
var ErrTruncated = errors.New("there are more directories than the server reads at once: walk a part at a time")
