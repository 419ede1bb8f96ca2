package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// TransferOptions say how files are copied between this machine and the server.
// The zero value copies one file.
type TransferOptions struct {
	// Recursive copies directories with all that is in them, and links as links,
	// also the source itself unless it ends with a slash or with "/.". If not, a
	// directory is refused and a link followed.
	Recursive bool
	// Preserve gives files the times of the last change of their sources, and the
	// set-user-ID, set-group-ID and sticky bits. The permission bits, of mode
	// 0777, they get in any case; owners never.
	Preserve bool
	// NoReplace leaves files and links that are there as they are.
	NoReplace bool
	// Update leaves files out that are there with the same size, time and
	// permission bits, and gives the others the time of their source.
	Update bool
	// Checksum is Update that compares the SHA-256 in place of the time.
	Checksum bool
	// Delete removes what is in the directories of the destination and not in
	// those of the source, when everything was copied, and what is in the way of
	// something of another type.
	Delete bool
	// Parallel is how many files are copied at once; 0 is 16.
	Parallel int
	// InPlace has Push write files in place, and give neither files nor directories
	// permission bits: for servers of the exec-server protocol that can do no more. A
	// reader can see a part of a file, and a failure leaves one. It does not go
	// together with Preserve, NoReplace, Update and Checksum. For Pull it means
	// nothing.
	InPlace bool

	// OnProgress is called while files are copied, and OnFailed for every file
	// that was not, with its path relative to the source, "." for that itself. They
	// are called one at a time, by different goroutines.
	OnProgress func(TransferProgress)
	OnFailed   func(path string, err error)
}

// Transferred says what was copied.
type Transferred struct {
	// Files, Links and Directories are how many of them were copied; of
	// directories, those that were made count.
	Files, Links, Directories int
	// Skipped is how many files and links were left as they are by NoReplace,
	// Update or Checksum.
	Skipped int
	// Omitted is how many FIFOs, sockets and devices were left out.
	Omitted int
	// Changed is how many files were changed while they were copied.
	Changed int
	// Deleted is how many paths of the destination were removed.
	Deleted int
	// Failed is how many files were not copied or removed.
	Failed int
	// Bytes is the size of the files that were copied.
	Bytes int64
}

// TransferProgress is how far a transfer is.
type TransferProgress struct {
	// Transferred is what is done.
	Transferred
	// Path is the file that is being copied, relative to the source.
	Path string
	// Size is its size, and Done how much of it was copied. The bytes of files
	// that are not done yet are in MovingBytes, for all that are copied at once.
	Size, Done, MovingBytes int64
}

// TransferError says that some files were not copied.
type TransferError struct {
	// Failed is how many.
	Failed int
	// Path is the first of them, relative to the source, and Err what was wrong.
	Path string
	Err  error
}

func (e *TransferError) Error() string {
	if e.Failed == 1 {
		return e.Err.Error()
	}
	return fmt.Sprintf("failed to copy %d files, the first of them: %v", e.Failed, e.Err)
}

func (e *TransferError) Unwrap() error { return e.Err }

// Push copies a file or directory of this machine to a path of the server: to
// exactly that path, which a directory is merged into if it is one, or a link to
// one. Below it no directory is merged into what a link leads to, but files of the
// server that are links are written where they lead, unless Delete removes them
// first. Every file is put in its place when it is whole, as by [Client.Upload].
// Where the server sees the files of this machine, the copy itself is not copied: a
// directory that could be it gets, for a moment, another one in it whose name begins
// with ".execwire-", and a directory of the source where that is found is a failure.
//
// What the server has of a large file that ctx or Close interrupts is kept, and the same
// Push goes on with it; of several, that of which most was sent is kept, and the others
// are aborted, a second at most.
//
// Errors are [*TransferError] when some files were not copied, the others being
// so, those of the first call if the server is lost, or wrap the cause of ctx.
func (c *Client) Push(ctx context.Context, local, remote string, options TransferOptions) (Transferred, error) {
	if options.InPlace && (options.Preserve || options.NoReplace || options.Update || options.Checksum) {
		return Transferred{}, errInPlace
	}
	defer c.life.uploads.add()()
	ctx, done := c.life.within(ctx)
	defer done()
	source, err := openLocal(local)
	if err != nil {
		return Transferred{}, err
	}
	defer source.close()
	if !options.Recursive || namesDirectory(local) {
		if err := source.follow(ctx); err != nil {
			return Transferred{}, err
		}
	}
	destination := &remoteSide{client: c, base: remote, plain: options.InPlace}
	t := newTransfer(source, destination, options)
	t.wantsDirectory = namesDirectory(local)
	t.copy = func(ctx context.Context, name string) (int64, bool, error) {
		return t.push(ctx, source, destination, name)
	}
	t.finish = func() error { t.abortUploads(ctx, c); return nil }
	return t.run(ctx)
}

// Pull copies a file or directory of the server to a path of this machine, as
// Push does the other way. A file is written beside its place, to a hidden name
// that ends with ".execwire-part", and then renamed. Of a large one that was
// interrupted this stays, see [InterruptedError]. Nothing is written outside of
// the destination, whatever names and links the server tells.
func (c *Client) Pull(ctx context.Context, remote, local string, options TransferOptions) (Transferred, error) {
	destination, err := openLocal(local)
	if err != nil {
		return Transferred{}, err
	}
	defer destination.close()
	source := &remoteSide{client: c, base: remote}
	if !options.Recursive || namesDirectory(remote) {
		if err := source.follow(ctx); err != nil {
			return Transferred{}, err
		}
	}
	t := newTransfer(source, destination, options)
	t.wantsDirectory = namesDirectory(remote)
	t.copy = func(ctx context.Context, name string) (int64, bool, error) {
		return t.pull(ctx, source, destination, name)
	}
	t.finish = destination.setModes
	return t.run(ctx)
}

// push uploads one file and returns its size.
func (t *transfer) push(ctx context.Context, source *localSide, destination *remoteSide, name string) (size int64, changed bool, err error) {
	file, info, err := source.open(name)
	if err != nil {
		return 0, false, err
	}
	defer file.Close()
	permissions := modeBits(info.Mode()) & t.modeMask()
	left := leftUpload{path: destination.path(name)}
	options := UploadOptions{
		Permissions: &permissions, IfMissing: t.options.NoReplace,
		OnProgress: func(sent int64) { left.sent = sent; t.progress(name, info.Size(), sent) },
	}
	if t.keepsTimes() {
		options.ModifyTime = info.ModTime()
	}
	if info.Size() > resumeBytes {
		options.ID = uploadID(file.Name(), info, destination.path(name))
	}
	if t.options.InPlace {
		options = UploadOptions{InPlace: true, OnProgress: options.OnProgress}
	}
	uploaded, err := destination.client.Upload(ctx, destination.path(name), file, options)
	if err != nil {
		left.id = options.ID
		t.left(ctx, left, err)
		return 0, false, err
	}
	after, err := file.Stat()
	changed = err == nil && (after.Size() != info.Size() || !after.ModTime().Equal(info.ModTime()))
	return uploaded.Size, changed, nil
}

// pull downloads one file and returns its size. One that is changed while a lost
// connection is resumed is downloaded again.
func (t *transfer) pull(ctx context.Context, source *remoteSide, destination *localSide, name string) (size int64, changed bool, err error) {
	part, err := destination.create(name, source.path(name))
	if err != nil {
		return 0, false, err
	}
	defer part.discard()
	for restarts := 0; ; restarts++ {
		done, err := source.client.Download(ctx, source.path(name), part.file, DownloadOptions{
			Offset: part.size, IfVersion: part.version,
			OnHead:     func(m *execwirev1.FileMetadata) error { part.head = m; return nil },
			OnProgress: func(written int64) { t.progress(name, int64(part.head.GetSize()), part.size+written) },
		})
		part.size += done.Size
		if Reason(err) == execwirev1.ErrorReason_ERROR_REASON_FILE_CHANGED && restarts < mostRestarts {
			if err := part.restart(); err != nil {
				return 0, false, err
			}
			continue
		}
		if err != nil {
			if isFatal(ctx, err) && part.keep() {
				err = &InterruptedError{Size: part.size, Err: err}
			}
			return 0, false, err
		}
		modifyTime := time.Time{}
		if t.keepsTimes() {
			modifyTime = part.head.GetModifyTime().AsTime()
		}
		return part.size, done.Changed, part.commit(fileMode(part.head.GetMode()&t.modeMask()), modifyTime, t.options.NoReplace)
	}
}

// InterruptedError says that a download ended early, and that what there is of it
// was kept: a Pull of the same file to the same path goes on with it, if the file
// is not changed until then.
type InterruptedError struct {
	// Size is how many bytes were kept.
	Size int64
	// Err is why it ended.
	Err error
}

func (e *InterruptedError) Error() string { return e.Err.Error() }

func (e *InterruptedError) Unwrap() error { return e.Err }

// modeMask are the mode bits that are copied.
func (t *transfer) modeMask() uint32 {
	if t.options.Preserve {
		return 0o7777
	}
	return 0o777
}

func (t *transfer) keepsTimes() bool {
	return t.options.Preserve || t.options.Update || t.options.Checksum
}

var (
	errInPlace      = errors.New("TransferOptions.InPlace does not go together with Preserve, NoReplace, Update and Checksum: leave it or them out")
	errIsDirectory  = errors.New("it is a directory")
	errNotDirectory = errors.New("it is not a directory")
	errSpecial      = errors.New("it is a FIFO, socket or device: only files, links and directories are copied")
	errIntoItself   = errors.New("the copy is in the directory that is copied: choose a place outside")
	errInTheWay     = errors.New("something of another type is in its place")
)

// fileMode are mode bits as package os has them.
func fileMode(bits uint32) os.FileMode {
	mode := os.FileMode(bits & 0o777)
	for bit, flag := range map[uint32]os.FileMode{0o4000: os.ModeSetuid, 0o2000: os.ModeSetgid, 0o1000: os.ModeSticky} {
		if bits&bit != 0 {
			mode |= flag
		}
	}
	return mode
}

// modeBits are the mode bits of what package os has.
func modeBits(mode os.FileMode) uint32 {
	bits := uint32(mode.Perm())
	for bit, flag := range map[uint32]os.FileMode{0o4000: os.ModeSetuid, 0o2000: os.ModeSetgid, 0o1000: os.ModeSticky} {
		if mode&flag != 0 {
			bits |= bit
		}
	}
	return bits
}

// namesDirectory is whether a path names a directory, by a slash at its end or a
// dot after that: what a link leads to is meant, and not the link.
func namesDirectory(name string) bool {
	switch name[strings.LastIndexByte(name, '/')+1:] {
	case "", ".", "..":
		return true
	}
	return false
}
