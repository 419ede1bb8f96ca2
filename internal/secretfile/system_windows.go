package secretfile

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// nonBlocking is not needed: opening a pipe fails or does not block.
const nonBlocking = 0

// checkSecret rejects a file that others can read or write.
func checkSecret(f *os.File, _ fs.FileInfo) *Error { return checkAccess(f, true) }

// checkPublic rejects a file that others can write.
func checkPublic(f *os.File, _ fs.FileInfo) *Error { return checkAccess(f, false) }

// checkAccess examines the access list of a file: the mode that Go reports is made up from the
// read-only attribute.
func checkAccess(f *os.File, secret bool) *Error {
	entries, owner, err := access(f)
	if err != nil {
		return &Error{File: f.Name(), Problem: "has no access list that can be examined", Fix: "move it to a volume with NTFS", Err: err}
	}
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return &Error{File: f.Name(), Problem: "cannot be compared with the user of this program", Err: err}
	}
	return checkEntries(f.Name(), entries, owner, user.User.Sid.String(), secret)
}

// access returns the entries of the access list of a file, and its owner.
func access(f *os.File) (entries []entry, owner string, err error) {
	about, err := windows.GetSecurityInfo(windows.Handle(f.Fd()), windows.SE_FILE_OBJECT, windows.OWNER_SECURITY_INFORMATION|windows.DACL_SECURITY_INFORMATION)
	if err != nil {
		return nil, "", err
	}
	sid, _, err := about.Owner()
	if err != nil {
		return nil, "", err
	}
	list, _, err := about.DACL()
	if err != nil && !errors.Is(err, windows.ERROR_OBJECT_NOT_FOUND) {
		return nil, "", err
	}
	if list == nil { // everything is allowed
		return []entry{{sid: everyoneSID, rights: genericAll}}, sid.String(), nil
	}
	for i := range uint32(list.AceCount) {
		var ace *windows.ACCESS_ALLOWED_ACE
		if err := windows.GetAce(list, i, &ace); err != nil {
			return nil, "", err
		}
		isAllowed := ace.Header.AceType == windows.ACCESS_ALLOWED_ACE_TYPE || ace.Header.AceType == allowedCallback
		if isAllowed && ace.Header.AceFlags&windows.INHERIT_ONLY_ACE == 0 {
			entries = append(entries, entry{sid: (*windows.SID)(unsafe.Pointer(&ace.SidStart)).String(), rights: uint32(ace.Mask)})
		}
	}
	return entries, sid.String(), nil
}

// allowedCallback is the type of an entry with a condition, which is taken as fulfilled.
const allowedCallback = 9

// shortages are transient failures of the system, unrelated to the content of a file. A
// sharing violation is that of a file while another program replaces it.
var shortages = []syscall.Errno{
	windows.ERROR_TOO_MANY_OPEN_FILES, windows.ERROR_NOT_ENOUGH_MEMORY, windows.ERROR_SHARING_VIOLATION, windows.ERROR_LOCK_VIOLATION,
}
