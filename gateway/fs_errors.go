package gateway

import (
	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// osErrorCodes are the codes of errors of the operating system in calls on
// files, where they are not internal errors.
var osErrorCodes = map[string]int{
	"ENOENT": jsonrpc.CodeNotFound,
	"EACCES": jsonrpc.CodeInvalidRequest,
	"EPERM":  jsonrpc.CodeInvalidRequest,
	"EINVAL": jsonrpc.CodeInvalidRequest,
}

// fileCodes are the codes of what the core refuses by itself.
var fileCodes = map[execwirev1.ErrorReason]int{
	execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY:      jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE:  jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_COPY_INTO_ITSELF:    jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_TREE_TOO_DEEP:       jsonrpc.CodeLimitReached,
	execwirev1.ErrorReason_ERROR_REASON_SYMLINK_REFUSED:     jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_FILE_TOO_LARGE:      jsonrpc.CodeLimitReached,
	execwirev1.ErrorReason_ERROR_REASON_CONTENT_NOT_MATCHED: jsonrpc.CodeInvalidRequest,

	execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FILE_HANDLES: jsonrpc.CodeLimitReached,
}

// fileFailure is what the client is told of a call on files that failed: what
// the operating system said, in the words of the reference, or what the core
// says.
func fileFailure(err error) *jsonrpc.Error {
	failure := failureOf(err)
	errno := coreInfo(err).GetMetadata()["errno"]
	if text := osErrorText(errno); text != "" {
		failure.Message = text
	}
	if errno != "" {
		failure.Code = jsonrpc.CodeInternal
		if code, ok := osErrorCodes[errno]; ok {
			failure.Code = code
		}
		return failure
	}
	if code, ok := fileCodes[reasonOf(err)]; ok {
		failure.Code = code
	}
	return failure
}

// watchFailure is fileFailure for watches: what the core says of its limits and of
// those of the system names what to raise.
func watchFailure(err error) *jsonrpc.Error {
	switch reasonOf(err) {
	case execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_WATCHES, execwirev1.ErrorReason_ERROR_REASON_WATCH_UNAVAILABLE:
		return failureOf(err)
	}
	return fileFailure(err)
}

// contentFailure is fileFailure for calls that need a file with content.
func contentFailure(err error, p clientPath) *jsonrpc.Error {
	failure := fileFailure(err)
	switch reasonOf(err) {
	case execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY, execwirev1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE:
		if failure.Code == jsonrpc.CodeInvalidRequest {
			failure.Message = "path `" + shorten(clientPath{}.like(p.native)) + "` is not a file"
		}
	}
	return failure
}

// copyRefusals are the texts of the reference for what the core refuses to copy.
var copyRefusals = map[execwirev1.ErrorReason]string{
	execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY:     "fs/copy requires recursive: true when sourcePath is a directory",
	execwirev1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE: "fs/copy only supports regular files, directories, and symlinks",
	execwirev1.ErrorReason_ERROR_REASON_COPY_INTO_ITSELF:   "fs/copy cannot copy a directory to itself or one of its descendants",
}

func copyFailure(err error) *jsonrpc.Error {
	failure := fileFailure(err)
	if text, ok := copyRefusals[reasonOf(err)]; ok && failure.Code == jsonrpc.CodeInvalidRequest {
		failure.Message = text
	}
	return failure
}
