package rpcerror

import "fmt"

// osErrors are the errors of the operating system, with the numbers of Linux and the
// texts of the reference.
var osErrors = map[string]struct {
	number int
	text   string
}{
	"EPERM":        {1, "Operation not permitted"},
	"ENOENT":       {2, "No such file or directory"},
	"EIO":          {5, "I/O error"},
	"E2BIG":        {7, "Argument list too long"},
	"ENOEXEC":      {8, "Exec format error"},
	"EBADF":        {9, "Bad file descriptor"},
	"EAGAIN":       {11, "Resource temporarily unavailable"},
	"ENOMEM":       {12, "Out of memory"},
	"EACCES":       {13, "Permission denied"},
	"EBUSY":        {16, "Resource busy"},
	"EEXIST":       {17, "File exists"},
	"EXDEV":        {18, "Cross-device link"},
	"ENODEV":       {19, "No such device"},
	"ENOTDIR":      {20, "Not a directory"},
	"EISDIR":       {21, "Is a directory"},
	"EINVAL":       {22, "Invalid argument"},
	"ENFILE":       {23, "Too many open files in system"},
	"EMFILE":       {24, "No file descriptors available"},
	"ETXTBSY":      {26, "Text file busy"},
	"EFBIG":        {27, "File too large"},
	"ENOSPC":       {28, "No space left on device"},
	"EROFS":        {30, "Read-only file system"},
	"EMLINK":       {31, "Too many links"},
	"ENAMETOOLONG": {36, "Filename too long"},
	"ENOTEMPTY":    {39, "Directory not empty"},
	"ELOOP":        {40, "Symbolic link loop"},
	"ENXIO":        {6, "No such device or address"},
	"ELIBBAD":      {80, "Accessing a corrupted shared library"},
	"EUSERS":       {87, "Too many users"},
	"EOPNOTSUPP":   {95, "Not supported"},
	"ESTALE":       {116, "Stale file handle"},
	"EDQUOT":       {122, "Quota exceeded"},
}

// OSText returns the reference's text of an error, or "" if it is unknown.
func OSText(name string) string {
	known, ok := osErrors[name]
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s (os error %d)", known.text, known.number)
}
