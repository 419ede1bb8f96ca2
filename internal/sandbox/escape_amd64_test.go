package sandbox

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	// A kernel without these calls, or under a hypervisor without them, sends a signal.
	processAttempts["use keys by 32-bit calls"] = attempt{make: by32Bits, absent: "signal SIGSEGV: segmentation violation"}
}

// by32Bits asks for a keyring by the entry for programs of 32 bits, whose calls have other numbers.
func by32Bits(stage) error {
	code := []byte{
		0x53,                   // push rbx
		0xb8, 0x20, 0x01, 0, 0, // mov eax, 288: keyctl
		0x31, 0xdb, // xor ebx, ebx: KEYCTL_GET_KEYRING_ID
		0xb9, 0xfe, 0xff, 0xff, 0xff, // mov ecx, -2: KEY_SPEC_PROCESS_KEYRING
		0xba, 0x01, 0, 0, 0, // mov edx, 1: make it
		0xcd, 0x80, // int 0x80
		0x5b, // pop rbx
		0xc3, // ret
	}
	page, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	copy(page, code)
	if err := unix.Mprotect(page, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		return err
	}
	entry := &page[0]
	function := unsafe.Pointer(&entry)
	if ring := (*(*func() int32)(unsafe.Pointer(&function)))(); ring < 0 {
		return errors.Join(errors.New("there is no keyring"), unix.Errno(-ring))
	}
	return nil
}
