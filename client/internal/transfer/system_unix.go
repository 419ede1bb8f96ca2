//go:build unix

package transfer

import (
	"fmt"
	"os"
	"syscall"
)

// Flags for opening files.
const (
	directoryOnly = syscall.O_DIRECTORY
	noFollow      = syscall.O_NOFOLLOW
	nonBlocking   = syscall.O_NONBLOCK
)

// identity tells a file from others that have had its name.
func identity(_ *os.File, info os.FileInfo) string {
	stat := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf(" %d %d", stat.Dev, stat.Ino)
}

// keepOwner copies the owner of the replaced file, if permitted.
func (p *Part) keepOwner() {
	if p.before == nil {
		return
	}
	if stat, ok := p.before.Sys().(*syscall.Stat_t); ok && p.before.Mode().IsRegular() {
		_ = p.File.Chown(int(stat.Uid), int(stat.Gid))
	}
}
