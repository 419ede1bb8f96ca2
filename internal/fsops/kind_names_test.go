package fsops

import "fmt"

var kindNames = map[Kind]string{
	Failed:              "failed",
	InvalidPath:         "invalid path",
	NotFound:            "not found",
	AlreadyExists:       "already exists",
	NotADirectory:       "not a directory",
	IsADirectory:        "is a directory",
	DirectoryNotEmpty:   "directory not empty",
	NotRegular:          "not a regular file",
	TooLarge:            "too large",
	SymlinkLoop:         "symlink loop",
	ReadOnly:            "read-only",
	NoSpace:             "no space",
	PermissionDenied:    "permission denied",
	CopyIntoItself:      "copy into itself",
	TreeTooDeep:         "tree too deep",
	CrossDevice:         "cross device",
	DigestMismatch:      "digest mismatch",
	ContentNotMatched:   "content not matched",
	Changed:             "changed",
	UploadNotFound:      "upload not found",
	UploadOtherPath:     "upload for another path",
	UploadOffsetInvalid: "upload offset invalid",
	UploadTakenOver:     "upload taken over",
	TooManyUploads:      "too many uploads",
	MountPoint:          "mount point",
	SymlinkRefused:      "symlink refused",
	TooManyWatches:      "too many watches",
	TooManyAwaitedPaths: "too many awaited paths",
	WatchUnavailable:    "watch unavailable",
	HandleNotFound:      "handle not found",
	HandleExists:        "handle exists",
	TooManyHandles:      "too many handles",
	Exhausted:           "exhausted",
}

// String names a kind in the reports of tests.
func (k Kind) String() string {
	if name, ok := kindNames[k]; ok {
		return name
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}
