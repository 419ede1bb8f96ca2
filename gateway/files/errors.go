package files

import (
	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// osErrorCodes are the codes of operating system errors in file calls; others are
// internal errors.
var osErrorCodes = map[string]int{
	"ENOENT": jsonrpc.CodeNotFound,
	"EACCES": jsonrpc.CodeInvalidRequest,
	"EPERM":  jsonrpc.CodeInvalidRequest,
	"EINVAL": jsonrpc.CodeInvalidRequest,
}

// fileError converts an error of a file call: an operating system error with the
// reference's text, or the server's text.
func fileError(err error) *jsonrpc.Error {
	failure := rpcerror.Of(err)
	errno := errorinfo.Of(err).GetMetadata()["errno"]
	if text := rpcerror.OSText(errno); text != "" {
		failure.Message = text
	}
	if errno != "" {
		failure.Code = jsonrpc.CodeInternal
		if code, ok := osErrorCodes[errno]; ok {
			failure.Code = code
		}
		return failure
	}
	return failure
}

// watchFailure is fileError for watches. The server's text about a limit names the
// setting to raise.
func watchFailure(err error) *jsonrpc.Error {
	switch errorinfo.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_WATCHES, execwirev1.ErrorReason_ERROR_REASON_WATCH_UNAVAILABLE:
		return rpcerror.Of(err)
	}
	return fileError(err)
}

// contentFailure is fileError for calls that need a file with content.
func contentFailure(err error, p param.Path) *jsonrpc.Error {
	failure := fileError(err)
	switch errorinfo.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY, execwirev1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE:
		if failure.Code == jsonrpc.CodeInvalidRequest {
			failure.Message = "path `" + param.Shorten(param.Path{}.Like(p.Native)) + "` is not a file"
		}
	}
	return failure
}

// copyRefusals are the reference's texts for copies that are not possible.
var copyRefusals = map[execwirev1.ErrorReason]string{
	execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY:     "fs/copy requires recursive: true when sourcePath is a directory",
	execwirev1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE: "fs/copy only supports regular files, directories, and symlinks",
	execwirev1.ErrorReason_ERROR_REASON_COPY_INTO_ITSELF:   "fs/copy cannot copy a directory to itself or one of its descendants",
}

func copyFailure(err error) *jsonrpc.Error {
	failure := fileError(err)
	if text, ok := copyRefusals[errorinfo.Reason(err)]; ok && failure.Code == jsonrpc.CodeInvalidRequest {
		failure.Message = text
	}
	return failure
}

// nothing is the result {}.
type nothing struct{}

// done returns the result of a call that has none.
func done(err error) (any, *jsonrpc.Error) {
	if err != nil {
		return nil, fileError(err)
	}
	return nothing{}, nil
}
