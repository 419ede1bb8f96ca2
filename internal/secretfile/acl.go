package secretfile

import (
	"fmt"
	"slices"
)

// entry is an entry of an access list of Windows that allows rights. Entries that deny are
// not considered: a file is not made secret by exceptions.
type entry struct {
	sid    string // of the user or group, as S-1-5-18
	rights uint32
}

// Rights of entries: https://learn.microsoft.com/windows/win32/fileio/file-access-rights-constants
const (
	genericAll    = 0x10000000
	rightsToRead  = genericAll | 0x80000000 | 0x1         // GENERIC_READ, FILE_READ_DATA
	rightsToWrite = genericAll | 0x40000000 | 0x2 | 0x4 | // GENERIC_WRITE, FILE_WRITE_DATA, FILE_APPEND_DATA
		0x40000 | 0x80000 // WRITE_DAC, WRITE_OWNER
)

// Users and groups with the rights of the system, and with those of the owner.
const (
	systemSID         = "S-1-5-18"
	administratorsSID = "S-1-5-32-544"
	ownerRightsSID    = "S-1-3-4"
	everyoneSID       = "S-1-1-0"
)

// checkEntries rejects a file that others than its owner, the user of this program,
// administrators and the system can write or, if it is secret, read.
func checkEntries(path string, entries []entry, owner, user string, secret bool) *Error {
	for _, e := range entries {
		problem := ""
		switch {
		case slices.Contains([]string{owner, user, systemSID, administratorsSID, ownerRightsSID}, e.sid):
		case secret && e.rights&rightsToRead != 0:
			problem = "read"
		case e.rights&rightsToWrite != 0:
			problem = "written"
		}
		if problem != "" {
			return &Error{File: path, Problem: fmt.Sprintf("can be %s by others than its owner (%s)", problem, e.sid),
				Fix: fmt.Sprintf(`icacls "%s" /inheritance:r /grant:r "%%USERNAME%%:F"`, path)}
		}
	}
	return nil
}
