#include "textflag.h"

// func vforkSyscall(trap, a1, a2, a3 uintptr) (r1 uintptr, err syscall.Errno)
//
// It is syscall.rawVforkSyscall, called without the frame of a wrapper, which the child would overwrite.
TEXT ·vforkSyscall(SB), NOSPLIT, $0-48
	JMP syscall·rawVforkSyscall(SB)
