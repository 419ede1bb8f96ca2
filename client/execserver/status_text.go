package execserver

import (
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// osError matches the error of the operating system in the text of the reference.
var osError = regexp.MustCompile(`\(os error (\d{1,3})\)`)

// statusFromText returns the status of an error without a reason, by its code and text.
func statusFromText(method string, e *jsonrpc.Error) error {
	if found := osError.FindStringSubmatch(e.Message); found != nil {
		number, _ := strconv.Atoi(found[1]) // at most three digits
		return osStatus(method, linuxErrno(number), e.Message)
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

// osStatus returns the status of an error of the operating system, by its name.
func osStatus(method string, errno, message string) error {
	reasons, otherwise := fileReasons, execwirev1.ErrorReason_ERROR_REASON_FILE_SYSTEM_FAILED
	if method == "process/start" {
		reasons, otherwise = startReasons, execwirev1.ErrorReason_ERROR_REASON_SYSTEM_LIMIT
	}
	reason, ok := reasons[errno]
	if !ok {
		reason = otherwise
	}
	return newStatus(reason, message, map[string]string{"errno": errno})
}

// fileReasons are the reasons of failed calls on files.
var fileReasons = map[string]execwirev1.ErrorReason{
	"ENOENT":    execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND,
	"EPERM":     execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED,
	"EACCES":    execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED,
	"EEXIST":    execwirev1.ErrorReason_ERROR_REASON_PATH_ALREADY_EXISTS,
	"ENOTDIR":   execwirev1.ErrorReason_ERROR_REASON_NOT_A_DIRECTORY,
	"EISDIR":    execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY,
	"ENOTEMPTY": execwirev1.ErrorReason_ERROR_REASON_DIRECTORY_NOT_EMPTY,
	"EROFS":     execwirev1.ErrorReason_ERROR_REASON_READ_ONLY_FILE_SYSTEM,
	"ENOSPC":    execwirev1.ErrorReason_ERROR_REASON_NO_SPACE,
	"EDQUOT":    execwirev1.ErrorReason_ERROR_REASON_NO_SPACE,
	"ELOOP":     execwirev1.ErrorReason_ERROR_REASON_SYMLINK_LOOP,
	"EXDEV":     execwirev1.ErrorReason_ERROR_REASON_CROSS_DEVICE,
	"EBUSY":     execwirev1.ErrorReason_ERROR_REASON_MOUNT_POINT,
}

// startReasons are the reasons of failed starts. ENOENT is also that of a missing
// directory.
var startReasons = map[string]execwirev1.ErrorReason{
	"ENOENT":  execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND,
	"ENOTDIR": execwirev1.ErrorReason_ERROR_REASON_BAD_WORKING_DIRECTORY,
	"EACCES":  execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_EXECUTABLE,
	"ENOEXEC": execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_EXECUTABLE,
	"EPERM":   execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED,
	"E2BIG":   execwirev1.ErrorReason_ERROR_REASON_ARGUMENT_LIST_TOO_LONG,
}

// linuxErrno returns the name of an error of Linux, whatever this system is: that is where
// servers run. It is empty for an unknown number.
func linuxErrno(number int) string {
	if number < 1 || number > len(linuxErrnos) || linuxErrnos[number-1] == "-" {
		return ""
	}
	return linuxErrnos[number-1]
}

// linuxErrnos are the names from number 1 on.
var linuxErrnos = strings.Fields(`
EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK
EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE
EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP - ENOMSG EIDRM
ECHRNG EL2NSYNC EL3HLT EL3RST ELNRNG EUNATCH ENOCSI EL2HLT EBADE EBADR EXFULL ENOANO EBADRQC EBADSLT
- EBFONT ENOSTR ENODATA ETIME ENOSR ENONET ENOPKG EREMOTE ENOLINK EADV ESRMNT ECOMM EPROTO EMULTIHOP
EDOTDOT EBADMSG EOVERFLOW ENOTUNIQ EBADFD EREMCHG ELIBACC ELIBBAD ELIBSCN ELIBMAX ELIBEXEC EILSEQ
ERESTART ESTRPIPE EUSERS ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT
ESOCKTNOSUPPORT ENOTSUP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH
ENETRESET ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ESHUTDOWN ETOOMANYREFS ETIMEDOUT
ECONNREFUSED EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE EFSCORRUPTED ENOTNAM ENAVAIL EISNAM
EREMOTEIO EDQUOT ENOMEDIUM EMEDIUMTYPE ECANCELED ENOKEY EKEYEXPIRED EKEYREVOKED EKEYREJECTED
EOWNERDEAD ENOTRECOVERABLE ERFKILL EHWPOISON EFTYPE`)
