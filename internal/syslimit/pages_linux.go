package syslimit

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ReleaseProgram gives back the pages of the program's file that this process has used, most of
// which only its start needs. They stay in the page cache, and each one is mapped again when it is
// used: that takes about a microsecond. A server with its guardian has 13 MiB instead of 31. Pages
// that were changed, by relocation or a debugger, are kept, and so is their whole mapping.
func ReleaseProgram() {
	mappings, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	var from, to uintptr
	for line := range bytes.Lines(mappings) {
		var begin, end, inode uintptr
		var mode string
		if n, _ := fmt.Sscanf(string(line), "%x-%x %s %x %s %d", &begin, &end, &mode, new(uintptr), new(string), &inode); n == 6 {
			if from, to = begin, end; inode == 0 || mode[1] == 'w' {
				to = from
			}
		} else if string(bytes.Join(bytes.Fields(line), nil)) == "Anonymous:0kB" && from < to {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
		}
	}
}
