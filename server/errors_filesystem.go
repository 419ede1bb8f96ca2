package server

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/protoadapt"

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
	fsops.InvalidPattern:      {codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD},
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
}

func fromFiles(err *fsops.Error) error {
	t, ok := fileErrors[err.Kind]
	if !ok {
		t = translation{codes.Internal, execwirev1.ErrorReason_ERROR_REASON_INTERNAL}
	}
	text := strings.ToValidUTF8(err.Error(), string(utf8.RuneError))
	metadata := map[string]string{}
	if err.Errno != 0 {
		metadata["errno"] = err.ErrnoName()
	}
	details := []protoadapt.MessageV1{&errdetails.ResourceInfo{ResourceType: "path",
		ResourceName: strings.ToValidUTF8(err.Path, string(utf8.RuneError)), Description: text}}
	limit := strconv.FormatInt(err.Limit, 10)
	switch err.Kind {
	case fsops.TreeTooDeep:
		metadata["limit"] = limit
	case fsops.UploadOffsetInvalid:
		metadata["received_bytes"] = limit
	case fsops.UploadOtherPath:
		const field = "head.path"
		metadata["field"] = field
		details = append(details, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: text}}})
	}
	if q, ok := fileQuota(err); ok {
		details = append(details, q.describe(err.Limit, metadata)...)
	}
	return failure(t.code, t.reason, metadata, text, details...)
}
