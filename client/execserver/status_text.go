package execserver

import (
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"golang.org/x/sys/unix"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// osError matches the error of the operating system in the text of the reference.
var osError = regexp.MustCompile(`\(os error (\d{1,3})\)`)

// statusFromText returns the status of an error without a reason, by its code and text.
func statusFromText(method string, e *jsonrpc.Error) error {
	if found := osError.FindStringSubmatch(e.Message); found != nil {
		number, _ := strconv.Atoi(found[1]) // at most three digits
		return osStatus(method, unix.Errno(number), e.Message)
	}
	if reason := reasonFromText(e); reason != execwirev1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		return failure(reason, "%s", e.Message)
	}
	switch e.Code {
	case jsonrpc.CodeInvalidRequest:
		return status.Error(codes.FailedPrecondition, e.Message)
	case jsonrpc.CodeLimitReached:
		return status.Error(codes.ResourceExhausted, e.Message)
	}
	return status.Error(codes.Internal, e.Message)
}

// texts are parts of the texts of errors with the code CodeInvalidRequest.
var texts = []struct {
	part   string
	reason execwirev1.ErrorReason
}{
	{"unknown process id", execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND},
	{"already exists", execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS},
	{"unknown session id", execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND},
	{"is not a file", execwirev1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE},
	{"file is too large to read", execwirev1.ErrorReason_ERROR_REASON_FILE_TOO_LARGE},
	{"fs/copy cannot copy a directory to itself", execwirev1.ErrorReason_ERROR_REASON_COPY_INTO_ITSELF},
	{"fs/copy requires recursive", execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY},
	{"fs/copy only supports", execwirev1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE},
}

func reasonFromText(e *jsonrpc.Error) execwirev1.ErrorReason {
	switch e.Code {
	case jsonrpc.CodeMethodNotFound:
		return execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED
	case jsonrpc.CodeInvalidParams:
		return execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD
	case jsonrpc.CodeNotFound:
		return execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND
	case jsonrpc.CodeInvalidRequest:
		for _, text := range texts {
			if strings.Contains(e.Message, text.part) {
				return text.reason
			}
		}
	}
	return execwirev1.ErrorReason_ERROR_REASON_UNSPECIFIED
}

// osStatus returns the status of an error of the operating system.
func osStatus(method string, errno unix.Errno, message string) error {
	reasons, otherwise := fileReasons, execwirev1.ErrorReason_ERROR_REASON_FILE_SYSTEM_FAILED
	if method == "process/start" {
		reasons, otherwise = startReasons, execwirev1.ErrorReason_ERROR_REASON_SYSTEM_LIMIT
	}
	reason, ok := reasons[errno]
	if !ok {
		reason = otherwise
	}
	return newStatus(reason, message, map[string]string{"errno": unix.ErrnoName(errno)})
}

// fileReasons are the reasons of failed calls on files.
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

// startReasons are the reasons of failed starts. ENOENT is also that of a missing
// directory.
var startReasons = map[unix.Errno]execwirev1.ErrorReason{
	unix.ENOENT:  execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND,
	unix.ENOTDIR: execwirev1.ErrorReason_ERROR_REASON_BAD_WORKING_DIRECTORY,
	unix.EACCES:  execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_EXECUTABLE,
	unix.ENOEXEC: execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_EXECUTABLE,
	unix.EPERM:   execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED,
	unix.E2BIG:   execwirev1.ErrorReason_ERROR_REASON_ARGUMENT_LIST_TOO_LONG,
}
