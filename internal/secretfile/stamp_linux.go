package secretfile

import (
	"os"
	"syscall"
)

// stamp changes when a file is written, replaced, or given other permissions. The
// zero stamp is that of a file that cannot be examined.
type stamp struct {
	dev, ino, size uint64
	changed        syscall.Timespec // inode change time, which cannot be set
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	st := info.Sys().(*syscall.Stat_t)
	return stamp{dev: st.Dev, ino: st.Ino, size: uint64(st.Size), changed: st.Ctim}
}
