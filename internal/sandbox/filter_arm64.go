package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// archRefused are those of alwaysRefused that only this architecture has.
var archRefused = []uintptr{unix.SYS_KEXEC_FILE_LOAD}

// archMetadataRefused is empty: only the calls that all architectures have exist here.
var archMetadataRefused []uintptr
