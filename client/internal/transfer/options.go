// Package transfer copies files and directories between two machines. It decides what to
// copy, skip and delete, and in which order; its caller copies the content.
package transfer

import (
	"errors"
	"fmt"
)

// Options configure copying between this machine and the server. The zero value
// copies one file.
type Options struct {
	// Recursive copies directories recursively, and symbolic links as links, including
	// the source itself unless it ends with a slash or "/.". Otherwise a directory is
	// an error and a link is followed.
	Recursive bool
	// Preserve copies modification times and the set-user-ID, set-group-ID and sticky
	// bits. The permission bits, of mode 0777, are always copied, owners never. Files of
	// Windows have no mode: they arrive with 0644 or 0444, directories with 0755.
	Preserve bool
	// NoReplace does not replace existing files and links.
	NoReplace bool
	// Update skips files that exist with the same size, time and permission bits, and
	// sets the time of the others.
	Update bool
	// Checksum is Update that compares the SHA-256 instead of the time.
	Checksum bool
	// Delete removes entries of destination directories that the source does not have,
	// after everything was copied, and entries of another type that are in the way.
	Delete bool
	// Ignore are patterns in .gitignore notation, without negation, of entries that are
	// not copied, and that Delete removes only with a directory that the source does not
	// have. "*" and "?" match no slash, "**" any directories. A pattern with a slash before
	// its end matches paths relative to the source, any other names; one with a slash at
	// its end only directories.
	Ignore []string
	// InPlace makes Push write files in place and without permission bits: for
	// exec-server protocol servers that support no more. A reader can see a partial
	// file, and a failure leaves one. It excludes Preserve, NoReplace, Update and
	// Checksum. Pull ignores it.
	InPlace bool

	// OnProgress is called while files are copied, and OnFailed for every failed file,
	// with its path relative to the source, "." for the source itself. They are called
	// one at a time, by different goroutines.
	OnProgress func(Progress)
	OnFailed   func(path string, err error)
}

// Transferred counts what was copied.
type Transferred struct {
	// Files, Links and Directories count what was copied; of directories, those that
	// were created.
	Files, Links, Directories int
	// Skipped counts files and links left unchanged by NoReplace, Update or Checksum.
	Skipped int
	// Omitted counts FIFOs, sockets and devices, which are not copied.
	Omitted int
	// Changed counts files that changed while they were copied.
	Changed int
	// Deleted counts removed paths of the destination.
	Deleted int
	// Failed counts files that were not copied or removed.
	Failed int
	// Bytes is the size of the copied files.
	Bytes int64
}

// Progress is the progress of a transfer.
type Progress struct {
	// Transferred counts what is completed.
	Transferred
	// Path is the current file, relative to the source.
	Path string
	// Size is its size, and Done how much of it was copied. MovingBytes is the number
	// of copied bytes of all unfinished files.
	Size, Done, MovingBytes int64
}

// Error reports that some files were not copied.
type Error struct {
	// Failed is how many.
	Failed int
	// Path is the first of them, relative to the source, and Err its error.
	Path string
	Err  error
}

func (e *Error) Error() string {
	if e.Failed == 1 {
		return e.Err.Error()
	}
	return fmt.Sprintf("failed to copy %d files, the first of them: %v", e.Failed, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// InterruptedError reports that a download ended early and its part was kept: a Pull of
// the same file to the same path resumes it, if the file is unchanged.
type InterruptedError struct {
	// Size is the number of bytes kept.
	Size int64
	// Err is the cause.
	Err error
}

func (e *InterruptedError) Error() string { return e.Err.Error() }

func (e *InterruptedError) Unwrap() error { return e.Err }

// ModeMask returns the mode bits to copy.
func (o *Options) ModeMask() uint32 {
	if o.Preserve {
		return 0o7777
	}
	return 0o777
}

// KeepsTimes returns whether modification times are copied.
func (o *Options) KeepsTimes() bool {
	return o.Preserve || o.Update || o.Checksum
}

var (
	errIsDirectory  = errors.New("it is a directory")
	errNotDirectory = errors.New("it is not a directory")
	errSpecial      = errors.New("it is a FIFO, socket or device: only files, links and directories are copied")
	errIntoItself   = errors.New("the destination is inside the source: choose another destination")
	errInTheWay     = errors.New("an entry of another type is in its place")
)
