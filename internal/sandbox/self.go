package sandbox

import (
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// selfFile is the executable of this program, which is executed again inside
// bubblewrap: see package innerexec. Sandboxed programs, which may be root, must not be
// able to write to it through /proc/self/exe, which refers to it until the program is
// executed, and while a script has it as interpreter (CVE-2019-5736). So it is opened
// on a read-only mount, or, if its path refers to another file by now, copied to sealed
// memory. The zero value is ready to use.
type selfFile struct {
	mu   sync.Mutex
	copy *os.File // guarded by mu; nil: not needed so far
}

// path returns the path of the executable, or "" if it was replaced or removed.
func (f *selfFile) path() (string, fileID) {
	const self = "/proc/self/exe"
	var running, named unix.Stat_t
	path, err := os.Readlink(self)
	if err != nil || !filepath.IsAbs(path) || unix.Stat(self, &running) != nil || unix.Lstat(path, &named) != nil {
		return "", fileID{}
	}
	if fileIDOf(&running) != fileIDOf(&named) {
		return "", fileID{} // replaced
	}
	return path, fileIDOf(&running)
}

// descriptor returns a descriptor of a copy, which is valid until close.
func (f *selfFile) descriptor() (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.copy == nil {
		content, err := os.Open("/proc/self/exe")
		if err != nil {
			return -1, err
		}
		defer content.Close()
		fd, err := memoryFile("execwire", unix.MFD_EXEC|unix.MFD_ALLOW_SEALING, nil)
		if err != nil {
			return -1, err
		}
		file := os.NewFile(uintptr(fd), "execwire")
		if _, err = io.Copy(file, content); err == nil {
			_, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
		}
		if err != nil {
			_ = file.Close()
			return -1, err
		}
		f.copy = file
	}
	return int(f.copy.Fd()), nil
}

func (f *selfFile) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.copy != nil {
		_ = f.copy.Close()
		f.copy = nil
	}
}
