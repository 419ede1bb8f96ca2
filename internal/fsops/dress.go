package fsops

import (
	"golang.org/x/sys/unix"
)

// accessList is the attribute that has the access control list of a file, where it
// says more than its mode.
const accessList = "system.posix_acl_access"

// dress gives the file its owner, mode and time.
func (p *partial) dress(how *Replacement) error {
	m, err := p.fd.stat()
	if err != nil {
		return err
	}
	mode, changed := m.Mode, false
	if p.found.Type == Regular {
		mode, changed = p.inherit(m)
	}
	if how.Permissions != nil {
		mode = *how.Permissions
	}
	if changed || mode != m.Mode {
		if err := unix.Fchmod(int(p.fd), mode); err != nil {
			return err
		}
	}
	if how.ModifyTime.IsZero() {
		return nil
	}
	modified, err := unix.TimeToTimespec(how.ModifyTime)
	if err != nil {
		return err
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, modified}
	return unix.UtimesNanoAt(unix.AT_FDCWD, p.fd.procPath(), times, 0)
}

// inherit gives the file the owner, the group and the access control list of what
// it replaces, as far as we may, and returns the mode that is right for it then. It
// reports whether its mode may be another one now.
func (p *partial) inherit(m Metadata) (mode uint32, changed bool) {
	found := p.found
	mode = found.Mode
	if found.UID != m.UID || found.GID != m.GID {
		changed = true
		if unix.Fchown(int(p.fd), int(found.UID), int(found.GID)) != nil {
			mode &= copiedMode // the file has another owner: us
			if found.GID != m.GID && unix.Fchown(int(p.fd), -1, int(found.GID)) != nil {
				return forStrangers(mode), true
			}
		}
	}
	list := make([]byte, 4<<10)
	n, err := unix.Lgetxattr(p.dir.procPath()+"/"+p.name, accessList, list)
	switch err {
	case nil:
		if unix.Fsetxattr(int(p.fd), accessList, list[:n], 0) != nil {
			mode = forStrangers(mode)
		}
		return mode, true
	case unix.ERANGE: // which is a list of hundreds
		return forStrangers(mode), true
	}
	// There is none, so there is to be none that the directory has for new files.
	return mode, unix.Fremovexattr(int(p.fd), accessList) == nil || changed
}

// forStrangers is a mode for a file of another group than it was made for: nobody
// in that group was meant to have more of it than others.
func forStrangers(mode uint32) uint32 { return mode&^0o070 | mode&0o070&(mode<<3) }
