//go:build unix

package secretfile

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

const nonBlocking = syscall.O_NONBLOCK

// checkSecret rejects a file that others can read or write.
func checkSecret(f *os.File, info fs.FileInfo) *Error {
	mode, owner := info.Mode().Perm(), info.Sys().(*syscall.Stat_t).Uid
	if mode&0o004 != 0 || mode&0o040 != 0 && int(owner) == os.Geteuid() {
		return &Error{File: f.Name(), Problem: fmt.Sprintf("can be read by others than its owner (mode %04o)", mode), Fix: "chmod 600 " + f.Name()}
	}
	return checkPublic(f, info)
}

// checkPublic rejects a file that others can write.
func checkPublic(f *os.File, info fs.FileInfo) *Error {
	mode := info.Mode().Perm()
	if mode&0o022 == 0 {
		return nil
	}
	return &Error{File: f.Name(), Problem: fmt.Sprintf("can be written by others than its owner (mode %04o)", mode), Fix: "chmod go-w " + f.Name()}
}

// shortages are transient failures of the system, unrelated to the content of a file.
var shortages = []syscall.Errno{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR, syscall.EAGAIN, syscall.EIO, syscall.ESTALE, syscall.ETIMEDOUT,
}
