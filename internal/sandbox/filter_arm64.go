package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// archRefused are calls of alwaysRefused that only some architectures have.
var archRefused = []uintptr{unix.SYS_KEXEC_FILE_LOAD}

// archMetadataRefused is empty: this architecture has only the newer calls.
var archMetadataRefused []uintptr
