package transfer

import (
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// Flags for opening files, which Windows does not have: a directory is recognized when it is
// read, links are compared by their callers, and opening a pipe does not block.
const (
	directoryOnly = 0
	noFollow      = 0
	nonBlocking   = 0
)

// identity tells a file from others that have had its name. It is empty if the file system has
// no numbers for files.
func identity(file *os.File, _ os.FileInfo) string {
	var about windows.ByHandleFileInformation
	if windows.GetFileInformationByHandle(windows.Handle(file.Fd()), &about) != nil {
		return ""
	}
	return fmt.Sprintf(" %d %d %d", about.VolumeSerialNumber, about.FileIndexHigh, about.FileIndexLow)
}

// keepOwner does nothing: the owner of a file is who created it, and its access list is
// inherited from the directory.
func (p *Part) keepOwner() {}
