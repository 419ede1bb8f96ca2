package execserver

import (
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// osError finds the number of an error of the operating system in the texts of
// servers that give no reasons.
var osError = regexp.MustCompile(`\(os error (\d{1,3})\)`)

// guessed returns the status of an error of a server that gives no reasons, by its
// code and its text.
func guessed(method string, e *jsonrpc.Error) error {
	if said := osError.FindStringSubmatch(e.Message); said != nil {
		number, err := strconv.Atoi(said[1])
		if err == nil {
			return osFailure(method, unix.Errno(number), e.Message)
		}
	}
	if reason := guessedReason(e); reason != 0 {
		return statusWith(reason, e.Message, nil)
	}
	switch e.Code {
	case jsonrpc.CodeInvalidRequest:
		return status.Error(codes.FailedPrecondition, e.Message)
	case jsonrpc.CodeLimitReached:
		return status.Error(codes.ResourceExhausted, e.Message)
	}
	return status.Error(codes.Internal, e.Message)
}

func guessedReason(e *jsonrpc.Error) execwirev1.ErrorReason {
	switch {
	case e.Code == jsonrpc.CodeMethodNotFound:
		return execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED
	case e.Code == jsonrpc.CodeInvalidParams:
		return execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD
	case e.Code == jsonrpc.CodeNotFound && strings.Contains(e.Message, "file handle"):
		return execwirev1.ErrorReason_ERROR_REASON_FILE_HANDLE_NOT_FOUND
	case e.Code == jsonrpc.CodeNotFound:
		return execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND
	case e.Code == jsonrpc.CodeSessionAttached:
		return execwirev1.ErrorReason_ERROR_REASON_SESSION_ATTACHED
	case e.Code != jsonrpc.CodeInvalidRequest:
		return 0
	case strings.HasPrefix(e.Message, "unknown process id"):
		return execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND
	case strings.HasPrefix(e.Message, "process ") && strings.HasSuffix(e.Message, "already exists"):
		return execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS
	case strings.HasPrefix(e.Message, "unknown session id"):
		return execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND
	case strings.HasSuffix(e.Message, "is not a file"):
		return execwirev1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE
	case strings.HasPrefix(e.Message, "file is too large to read"):
		return execwirev1.ErrorReason_ERROR_REASON_FILE_TOO_LARGE
	case strings.HasPrefix(e.Message, "fs/copy cannot copy a directory to itself"):
		return execwirev1.ErrorReason_ERROR_REASON_COPY_INTO_ITSELF
	case strings.HasPrefix(e.Message, "fs/copy requires recursive"):
		return execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY
	case strings.HasPrefix(e.Message, "fs/copy only supports"):
		return execwirev1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE
	}
	return 0
}

// osFailure is the status of an error of the operating system.
func osFailure(method string, errno unix.Errno, message string) error {
	reasons, otherwise := fileReasons, execwirev1.ErrorReason_ERROR_REASON_FILE_SYSTEM_FAILED
	if method == "process/start" {
		reasons, otherwise = startReasons, execwirev1.ErrorReason_ERROR_REASON_SYSTEM_LIMIT
	}
	reason, ok := reasons[errno]
	if !ok {
		reason = otherwise
	}
	metadata := make(map[string]string, 1)
	if name := unix.ErrnoName(errno); name != "" {
		metadata["errno"] = name
	}
	return statusWith(reason, message, metadata)
}

// fileReasons are what calls on files fail for.
var fileReasons = map[unix.Errno]execwirev1.ErrorReason{
	unix.ENOENT:    execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND,
	unix.EPERM:     execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED,
	unix.EACCES:    execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED,
	unix.EEXIST:    execwirev1.ErrorReason_ERROR_REASON_PATH_ALREADY_EXISTS,
	unix.ENOTDIR:   execwirev1.ErrorReason_ERROR_REASON_NOT_A_DIRECTORY,
	unix.EISDIR:    execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY,
	unix.ENOTEMPTY: execwirev1.ErrorReason_ERROR_REASON_DIRECTORY_NOT_EMPTY,
	unix.EROFS:     execwirev1.ErrorReason_ERROR_REASON_READ_ONLY_FILE_SYSTEM,
	unix.ENOSPC:    execwirev1.ErrorReason_ERROR_REASON_NO_SPACE,
	unix.EDQUOT:    execwirev1.ErrorReason_ERROR_REASON_NO_SPACE,
	unix.ELOOP:     execwirev1.ErrorReason_ERROR_REASON_SYMLINK_LOOP,
	unix.EXDEV:     execwirev1.ErrorReason_ERROR_REASON_CROSS_DEVICE,
	unix.EBUSY:     execwirev1.ErrorReason_ERROR_REASON_MOUNT_POINT,
}

// startReasons are what a start fails for. Servers without reasons do not tell
// whether the program is missing or the directory.
var startReasons = map[unix.Errno]execwirev1.ErrorReason{
	unix.ENOENT:  execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND,
	unix.ENOTDIR: execwirev1.ErrorReason_ERROR_REASON_BAD_WORKING_DIRECTORY,
	unix.EACCES:  execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_EXECUTABLE,
	unix.ENOEXEC: execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_EXECUTABLE,
	unix.EPERM:   execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED,
	unix.E2BIG:   execwirev1.ErrorReason_ERROR_REASON_ARGUMENT_LIST_TOO_LONG,
}
