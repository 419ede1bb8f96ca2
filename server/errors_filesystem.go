package server

import (
	"strconv"

	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/fsops"
)

// fileErrors translates the kinds of package fsops; a test proves it complete.
var fileErrors = map[fsops.Kind]translation{
	fsops.Failed:              {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_FILE_SYSTEM_FAILED},
	fsops.InvalidPath:         {codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD},
	fsops.NotFound:            {codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND},
	fsops.AlreadyExists:       {codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_PATH_ALREADY_EXISTS},
	fsops.NotADirectory:       {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_NOT_A_DIRECTORY},
	fsops.IsADirectory:        {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY},
	fsops.DirectoryNotEmpty:   {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_DIRECTORY_NOT_EMPTY},
	fsops.NotRegular:          {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE},
	fsops.TooLarge:            {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_FILE_TOO_LARGE},
	fsops.SymlinkLoop:         {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_SYMLINK_LOOP},
	fsops.ReadOnly:            {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_READ_ONLY_FILE_SYSTEM},
	fsops.NoSpace:             {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_NO_SPACE},
	fsops.PermissionDenied:    {codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED},
	fsops.CopyIntoItself:      {codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_COPY_INTO_ITSELF},
	fsops.TreeTooDeep:         {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_TREE_TOO_DEEP},
	fsops.CrossDevice:         {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_CROSS_DEVICE},
	fsops.DigestMismatch:      {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_DIGEST_MISMATCH},
	fsops.ContentNotMatched:   {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_CONTENT_NOT_MATCHED},
	fsops.Changed:             {codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_FILE_CHANGED},
	fsops.UploadNotFound:      {codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_UPLOAD_NOT_FOUND},
	fsops.UploadOtherPath:     {codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD},
	fsops.UploadOffsetInvalid: {codes.OutOfRange, execwirev1.ErrorReason_ERROR_REASON_UPLOAD_OFFSET_INVALID},
	fsops.UploadTakenOver:     {codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_UPLOAD_TAKEN_OVER},
	fsops.TooManyUploads:      {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_UPLOADS},
	fsops.MountPoint:          {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_MOUNT_POINT},
	fsops.SymlinkRefused:      {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_SYMLINK_REFUSED},
	fsops.Exhausted:           {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_SYSTEM_LIMIT},
	fsops.TooManyWatches:      {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_WATCHES},
	fsops.TooManyAwaitedPaths: {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_WATCHES},
	fsops.WatchUnavailable:    {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_WATCH_UNAVAILABLE},
	fsops.HandleNotFound:      {codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_FILE_HANDLE_NOT_FOUND},
	fsops.HandleExists:        {codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_FILE_HANDLE_ALREADY_EXISTS},
	fsops.TooManyHandles:      {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FILE_HANDLES},
}

func fromFiles(err *fsops.Error) error {
	resource, name := "path", err.Path
	if err.Handle != "" {
		resource, name = "file handle", err.Handle
	}
	f := translate(fileErrors, err.Kind).failure(err.Error()).resource(resource, name, err.Error())
	f.setErrno(err.Errno)
	limit := strconv.FormatInt(err.Limit, 10)
	switch err.Kind {
	case fsops.TreeTooDeep:
		f.set("limit", limit)
	case fsops.UploadOffsetInvalid:
		f.set("received_bytes", limit)
	case fsops.UploadOtherPath:
		f.field("head.path", err.Error())
	}
	if q, ok := quotaOfFile(err); ok {
		f.limit(q, err.Limit)
	}
	return f.status()
}
