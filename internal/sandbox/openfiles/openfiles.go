// Package openfiles knows the limit of open files (RLIMIT_NOFILE) that this program was
// started with. Package syscall raises the soft limit when it is initialized. In its own
// children it restores the original one, which it does not export.
//
// Go initializes packages in the order of their paths, each as soon as its dependencies
// are initialized. This package has none but package runtime, so it reads the limit
// before package syscall raises it.
package openfiles

import (
	"runtime"
	"unsafe"
)

// Limit is RLIMIT_NOFILE.
type Limit struct {
	Soft uint64 // enforced
	Hard uint64 // to which a process may raise Soft
}

// original is the limit that this program was started with; zero if it is not known.
var original = current()

// Children returns the limit for children of this program, and whether it differs from
// that of this program: unless the program has changed its limit since, it is the
// original one.
func Children() (limit Limit, differs bool) {
	now := current()
	raised := Limit{Soft: original.Hard - 1, Hard: original.Hard}
	if original == (Limit{}) || now != raised {
		return now, false
	}
	return original, original != now
}

func current() (limit Limit) {
	number := uintptr(302) // prlimit64 on amd64
	if runtime.GOARCH == "arm64" {
		number = 261
	}
	const noFile = 7 // RLIMIT_NOFILE
	if _, _, errno := rawSyscall6(number, 0, noFile, 0, uintptr(unsafe.Pointer(&limit)), 0, 0); errno != 0 {
		return Limit{}
	}
	return limit
}

// rawSyscall6 is syscall.RawSyscall6, without a dependency on package syscall.
//
//go:linkname rawSyscall6 syscall.RawSyscall6
func rawSyscall6(number, a, b, c, d, e, f uintptr) (r1, r2, errno uintptr)
