package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// WatchOptions say what of a directory to watch. The zero value is its entries.
type WatchOptions struct {
	// Recursive watches all that is below too.
	Recursive bool
	// Ignore are patterns of what is not told, in the notation of .gitignore.
	Ignore []string
	// Settle is for how long nothing must happen before changes are told; 0 tells
	// them at once, nil is the server's 50 ms.
	Settle *time.Duration
}

// WatchEvent is something that a watch has to tell.
type WatchEvent struct {
	// Started is whether this is the first event: what happens after it is told.
	Started bool
	// Changes are what happened, one for each path.
	Changes []WatchChange
	// Overflow is whether changes were lost: everything has to be looked at again.
	Overflow bool
	// Lost is a directory that is not watched any more; nil if this is about
	// something else.
	Lost *WatchLost
}

// WatchChange is what happened to a path.
type WatchChange struct {
	// Path is relative to the directory that is watched, in the bytes that it has
	// on the server.
	Path string
	// Kind is what happened.
	Kind execwirev1.WatchChangeKind
	// Type is what the path stands for now; unspecified if it is gone.
	Type execwirev1.FileType
}

// WatchLost is a directory that is not watched any more, nor what is below it.
type WatchLost struct {
	// Path is relative to the directory that is watched; "" is that itself.
	Path string
	// Reason is why, and Message says it to people.
	Reason  execwirev1.WatchLostReason
	Message string
}

// Watch tells what happens in a directory until ctx is done, the directory is
// gone, or do fails. do is called by the caller's goroutine; while it runs, the
// server gathers what happens, and at last tells an overflow. After a lost
// connection nobody can say what happened meanwhile: Watch fails, and whoever goes
// on begins a new one and looks at everything.
//
// Errors are those of do, [*Error], or wrap the cause of ctx.
func (c *Client) Watch(ctx context.Context, path string, options WatchOptions, do func(WatchEvent) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errors.New("the watch is over"))
	request := &execwirev1.WatchDirectoryRequest{Recursive: options.Recursive, Ignore: options.Ignore}
	request.Path, request.RawPath = pathFields(path)
	if options.Settle != nil {
		request.Settle = durationpb.New(*options.Settle)
	}
	stream, err := c.files.WatchDirectory(ctx, request)
	if err != nil {
		return answered(ctx, err)
	}
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("failed to watch %s: the server broke the contract: it ended the watch without a reason", path)
		}
		if err != nil {
			return answered(ctx, err)
		}
		if err := do(watchEvent(message)); err != nil {
			return err
		}
	}
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
