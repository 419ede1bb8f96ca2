package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/execwire/execwire/client/internal/transfer"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Types of [FileClient.Push] and [FileClient.Pull].
type (
	// TransferOptions configure copying between this machine and the server. The zero
	// value copies one file.
	TransferOptions = transfer.Options
	// Transferred counts what was copied.
	Transferred = transfer.Transferred
	// TransferProgress is the progress of a transfer.
	TransferProgress = transfer.Progress
	// TransferError reports that some files were not copied.
	TransferError = transfer.Error
	// InterruptedError reports that a download ended early and its part was kept: a Pull
	// of the same file to the same path resumes it, if the file is unchanged.
	InterruptedError = transfer.InterruptedError
)

var errInPlace = errors.New("TransferOptions.InPlace excludes Preserve, NoReplace, Update and Checksum")

// Push copies a file or directory of this machine to a path of the server: to exactly
// that path, merging into an existing directory or a link to one. Below it, directories
// are not merged through links, but files are written through links of the server,
// unless Delete removes them first. Every file is replaced atomically as by
// [FileClient.Upload]. If the server shares the file system, the copy does not copy itself:
// to detect that, Push briefly creates a directory whose name begins with ".execwire-"
// in destination directories, and a source directory in which it appears is an error.
//
// The partial upload of a large file that ctx or Close interrupts is kept, and the same
// Push resumes it; of several, the largest is kept, and the others are aborted within
// one second.
//
// Errors are [*TransferError] when some files were not copied but the others were,
// those of the first call if the server is lost, or wrap the cause of ctx.
func (c *FileClient) Push(ctx context.Context, local, remote string, options TransferOptions) (Transferred, error) {
	if options.InPlace && (options.Preserve || options.NoReplace || options.Update || options.Checksum) {
		return Transferred{}, errInPlace
	}
	defer c.life.finishing.add()()
	ctx, done := c.life.within(ctx)
	defer done()
	source, err := transfer.OpenLocal(local)
	if err != nil {
		return Transferred{}, err
	}
	defer source.Close()
	if !options.Recursive || transfer.LocalNamesDirectory(local) {
		if err := source.Follow(ctx); err != nil {
			return Transferred{}, err
		}
	}
	destination := &remoteSide{client: c, base: remote, plain: options.InPlace}
	p := &push{Transfer: transfer.New(source, destination, options), source: source, destination: destination}
	p.WantsDirectory, p.IsFatal, p.Copy = transfer.LocalNamesDirectory(local), isFatal, p.copy
	p.Finish = func() error { p.abortUploads(ctx); return nil }
	return p.Run(ctx)
}

// Pull copies a file or directory of the server to a path of this machine, with the
// rules of Push. A file is written to a hidden file beside its destination, whose name
// ends with ".execwire-part", and then renamed. That of an interrupted large file is
// kept, see [InterruptedError]. Nothing is written outside of the destination, whatever
// names and links the server returns. On Windows a file whose name Windows does not allow,
// such as one with a colon, fails, and the others are copied. Where the file system ignores
// case, of names that differ in case alone one replaces the other.
func (c *FileClient) Pull(ctx context.Context, remote, local string, options TransferOptions) (Transferred, error) {
	destination, err := transfer.OpenLocal(local)
	if err != nil {
		return Transferred{}, err
	}
	defer destination.Close()
	source := &remoteSide{client: c, base: remote}
	if !options.Recursive || transfer.NamesDirectory(remote) {
		if err := source.Follow(ctx); err != nil {
			return Transferred{}, err
		}
	}
	p := &pull{Transfer: transfer.New(source, destination, options), source: source, destination: destination}
	p.WantsDirectory, p.IsFatal, p.Copy, p.Finish = transfer.NamesDirectory(remote), isFatal, p.copy, destination.SetModes
	return p.Run(ctx)
}

// push is one Push.
type push struct {
	*transfer.Transfer
	source      *transfer.Local
	destination *remoteSide

	mu          sync.Mutex
	interrupted []interruptedUpload // guarded by mu
}

// pull is one Pull.
type pull struct {
	*transfer.Transfer
	source      *remoteSide
	destination *transfer.Local
}

// isFatal reports whether copying other files after err is useless.
func isFatal(ctx context.Context, err error) bool {
	var e *Error
	if ctx.Err() != nil {
		return true
	}
	return errors.As(err, &e) && (!e.fromServer || e.Code == codes.Unavailable || e.Code == codes.Unauthenticated ||
		e.Reason == execwirev1.ErrorReason_ERROR_REASON_CALL_NOT_ALLOWED)
}

// copy uploads one file and returns its size.
func (p *push) copy(ctx context.Context, name string) (size int64, changed bool, err error) {
	file, info, err := p.source.Open(name)
	if err != nil {
		return 0, false, err
	}
	defer file.Close()
	permissions := transfer.ModeBits(info.Mode()) & p.Options.ModeMask()
	left := interruptedUpload{path: p.destination.path(name)}
	options := UploadOptions{
		Permissions: &permissions, IfMissing: p.Options.NoReplace,
		OnProgress: func(sent int64) { left.sent = sent; p.Progress(name, info.Size(), sent) },
	}
	if p.Options.KeepsTimes() {
		options.ModifyTime = info.ModTime()
	}
	if info.Size() > resumeBytes {
		options.ID = transfer.UploadID(file, info, p.destination.path(name))
	}
	if p.Options.InPlace {
		options = UploadOptions{InPlace: true, OnProgress: options.OnProgress}
	}
	uploaded, err := p.destination.client.Upload(ctx, p.destination.path(name), file, options)
	if err != nil {
		left.id = options.ID
		p.noteInterrupted(ctx, left, err)
		return 0, false, err
	}
	after, err := file.Stat()
	changed = err == nil && (after.Size() != info.Size() || !after.ModTime().Equal(info.ModTime()))
	return uploaded.Size, changed, nil
}

// copy downloads one file and returns its size. If it changes while a lost connection
// is resumed, it is downloaded again.
func (p *pull) copy(ctx context.Context, name string) (size int64, changed bool, err error) {
	part, err := p.destination.Create(name, p.source.path(name))
	if err != nil {
		return 0, false, err
	}
	defer part.Discard()
	for restarts := 0; ; restarts++ {
		done, err := p.source.client.Download(ctx, p.source.path(name), part.File, DownloadOptions{
			Offset: part.Size, IfVersion: part.Version,
			OnHead:     func(m *execwirev1.FileMetadata) error { part.Head = m; return nil },
			OnProgress: func(written int64) { p.Progress(name, int64(part.Head.GetSize()), part.Size+written) },
		})
		part.Size += done.Size
		if Reason(err) == execwirev1.ErrorReason_ERROR_REASON_FILE_CHANGED && restarts < maxRestarts {
			if err := part.Restart(); err != nil {
				return 0, false, err
			}
			continue
		}
		if err != nil {
			if isFatal(ctx, err) && part.Keep() {
				err = &InterruptedError{Size: part.Size, Err: err}
			}
			return 0, false, err
		}
		modifyTime := time.Time{}
		if p.Options.KeepsTimes() {
			modifyTime = part.Head.GetModifyTime().AsTime()
		}
		return part.Size, done.Changed, part.Commit(transfer.FileMode(part.Head.GetMode()&p.Options.ModeMask()), modifyTime, p.Options.NoReplace)
	}
}

// interruptedUpload is an interrupted upload of a Push that the server keeps under its ID.
type interruptedUpload struct {
	path, id string
	sent     int64
}

// noteInterrupted records an upload interrupted by err.
func (p *push) noteInterrupted(ctx context.Context, upload interruptedUpload, err error) {
	if upload.id == "" || ctx.Err() == nil && !errors.As(err, new(*ReadError)) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.interrupted = append(p.interrupted, upload)
}

// abortUploads aborts the interrupted uploads except the largest, which the next Push
// resumes. It blocks for one second at most.
func (p *push) abortUploads(ctx context.Context) {
	p.mu.Lock()
	list := p.interrupted
	p.mu.Unlock()
	most := 0
	for i := range list {
		if list[i].sent > list[most].sent {
			most = i
		}
	}
	ctx, cancel := withFinishTimeout(ctx)
	defer cancel()
	var aborting sync.WaitGroup
	for i, left := range list {
		if i == most {
			continue
		}
		aborting.Go(func() {
			u := &upload{client: p.destination.client, path: left.path, id: left.id}
			_ = u.forget(ctx) // it expires
		})
	}
	aborting.Wait()
}
