package fsops

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// Kind classifies errors.
type Kind uint8

// The kinds of errors. There is no zero kind.
const (
	Failed              Kind = iota + 1 // a system error without a kind of its own
	InvalidPath                         // relative, empty, or with a NUL
	NotFound                            // the path or a part of it does not exist
	AlreadyExists                       // the path exists
	NotADirectory                       // the path or a part of it is something else
	IsADirectory                        // the path is a directory
	DirectoryNotEmpty                   // the directory has something in it
	NotRegular                          // a FIFO, socket or device
	TooLarge                            // the file exceeds Error.Limit bytes
	SymlinkLoop                         // too many links
	ReadOnly                            // the file system is read-only
	NoSpace                             // the file system or the quota is full
	PermissionDenied                    // the system forbids it
	CopyIntoItself                      // the destination is the source or below it
	TreeTooDeep                         // directories nested deeper than Error.Limit
	CrossDevice                         // the paths are of two file systems
	DigestMismatch                      // what came is not what was announced
	ContentNotMatched                   // the file has not the content that was to be replaced
	Changed                             // the file has another version
	UploadNotFound                      // no such upload
	UploadOtherPath                     // the upload is for another path
	UploadOffsetInvalid                 // the upload has received Error.Limit bytes only
	UploadTakenOver                     // another stream goes on with the upload
	TooManyUploads                      // of one owner, as many as Error.Limit
	MountPoint                          // the root of a mounted file system
	SymlinkRefused                      // a part of the path is a link, and none was to be followed
	TooManyWatches                      // the owner watches Error.Limit directories
	TooManyAwaitedPaths                 // the owner awaits Error.Limit paths
	WatchUnavailable                    // the system has no more to watch with, or one watch exceeds Error.Limit directories
	HandleNotFound                      // no file is open under the handle's id
	HandleExists                        // the id of the handle is in use
	TooManyHandles                      // Error.Limit handles are open
	Exhausted                           // out of descriptors or memory: may pass

	KindEnd // one after the last, for checks that a mapping is complete
)

// kinds are the kinds of system errors.
var kinds = map[syscall.Errno]Kind{
	unix.ENOENT:    NotFound,
	unix.EEXIST:    AlreadyExists,
	unix.ENOTDIR:   NotADirectory,
	unix.EISDIR:    IsADirectory,
	unix.ENOTEMPTY: DirectoryNotEmpty,
	unix.ELOOP:     SymlinkLoop,
	unix.EROFS:     ReadOnly,
	unix.ENOSPC:    NoSpace,
	unix.EDQUOT:    NoSpace,
	unix.EACCES:    PermissionDenied,
	unix.EPERM:     PermissionDenied,
	unix.EXDEV:     CrossDevice,
	unix.EMFILE:    Exhausted,
	unix.ENFILE:    Exhausted,
	unix.ENOMEM:    Exhausted,
}

// Error is the error type of this package, apart from the cause of a context.
type Error struct {
	// Kind is the class of the error.
	Kind Kind
	// Path is the path in question, which is the one that was given or one below
	// it.
	Path string
	// Handle is the id of the handle in question; then Path is empty.
	Handle string
	// Errno is the system error, or 0 if there was none.
	Errno syscall.Errno
	// Limit is what was exceeded: bytes of TooLarge and UploadOffsetInvalid,
	// directories of TreeTooDeep and, unless 0, WatchUnavailable, uploads of
	// TooManyUploads, watches of TooManyWatches, paths of TooManyAwaitedPaths,
	// handles of TooManyHandles.
	Limit int64
	// Err is what is wrong, and how to fix it.
	Err error

	verb string
}

func (e *Error) Error() string {
	if e.verb == "" { // about a handle
		return e.Err.Error()
	}
	return "failed to " + e.verb + " " + e.Path + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// ErrnoName returns the symbolic name of Errno, as in "ENOENT", or "".
func (e *Error) ErrnoName() string { return unix.ErrnoName(e.Errno) }

// KindOf returns the kind of an error of this package, and 0 for any other.
func KindOf(err error) Kind {
	if typed, ok := errors.AsType[*Error](err); ok {
		return typed.Kind
	}
	return 0
}

// failed returns the typed error for a system error about a path.
func failed(verb, path string, err error) *Error {
	typed := &Error{Kind: Failed, Path: path, Err: err, verb: verb}
	if errors.As(err, &typed.Errno) {
		if kind, ok := kinds[typed.Errno]; ok {
			typed.Kind = kind
		}
		typed.Err = explainEMFILE(err)
	}
	return typed
}

// failedAt is failed for a name that is removed or renamed, or gets another file.
func failedAt(verb string, at place, err error) error {
	if err == unix.EBUSY {
		if m, err := statAt(at.dir, at.name, unix.AT_SYMLINK_NOFOLLOW); err == nil && m.mountRoot {
			return mountPoint(verb, at.path)
		}
	}
	return failed(verb, at.path, err)
}

func mountPoint(verb, path string) error {
	return &Error{Kind: MountPoint, Path: path, Errno: unix.EBUSY, verb: verb,
		Err: errors.New("something is mounted there: unmount it first, or change what is in it")}
}

func newError(kind Kind, verb, path, why string) *Error {
	return &Error{Kind: kind, Path: path, Err: errors.New(why), verb: verb}
}

// withLimit sets the limit that was exceeded.
func (e *Error) withLimit(limit int64) *Error {
	e.Limit = limit
	return e
}

func notRegular(verb, path string) error {
	return newError(NotRegular, verb, path, "it is a FIFO, socket or device: only files have content")
}
