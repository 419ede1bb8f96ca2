package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// archRefused are calls of alwaysRefused that only this architecture has.
var archRefused = []uintptr{unix.SYS_KEXEC_FILE_LOAD, unix.SYS_IOPERM, unix.SYS_IOPL, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS__SYSCTL}

// archMetadataRefused are calls of metadataRefused that only this architecture has.
var archMetadataRefused = []uintptr{
	unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT,
}
