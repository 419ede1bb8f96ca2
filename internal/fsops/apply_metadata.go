package fsops

import (
	"golang.org/x/sys/unix"
)

// accessList is the extended attribute with the access control list of a file. It exists
// if the list is more than the mode.
const accessList = "system.posix_acl_access"

// applyMetadata sets the owner, the mode and the time of the file.
func (p *partial) applyMetadata(request *Replacement) error {
	m, err := p.fd.stat()
	if err != nil {
		return err
	}
	mode, changed := m.Mode, false
	if p.found.Type == Regular {
		mode, changed = p.inherit(m)
	}
	if request.Permissions != nil {
		mode = *request.Permissions
	}
	if changed || mode != m.Mode {
		if err := unix.Fchmod(int(p.fd), mode); err != nil {
			return err
		}
	}
	if request.ModifyTime.IsZero() {
		return nil
	}
	modified, err := unix.TimeToTimespec(request.ModifyTime)
	if err != nil {
		return err
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, modified}
	return unix.UtimesNanoAt(unix.AT_FDCWD, p.fd.procPath(), times, 0)
}

// inherit copies the owner, the group and the access control list of the file that is
// replaced, as far as permitted. It returns the mode to set, which allows no more than
// before, and reports whether the current mode may have changed.
func (p *partial) inherit(m Metadata) (mode uint32, changed bool) {
	found := p.found
	mode = found.Mode
	if found.UID != m.UID || found.GID != m.GID {
		changed = true
		if unix.Fchown(int(p.fd), int(found.UID), int(found.GID)) != nil {
			mode &= copiedMode // the owner is now this user
			if found.GID != m.GID && unix.Fchown(int(p.fd), -1, int(found.GID)) != nil {
				return withoutExtraGroupAccess(mode), true
			}
		}
	}
	list := make([]byte, 4<<10)
	n, err := unix.Lgetxattr(p.dir.procPath()+"/"+p.name, accessList, list)
	switch err {
	case nil:
		if unix.Fsetxattr(int(p.fd), accessList, list[:n], 0) != nil {
			mode = withoutExtraGroupAccess(mode)
		}
		return mode, true
	case unix.ERANGE: // a list with hundreds of entries
		return withoutExtraGroupAccess(mode), true
	}
	// The file had no list, so it does not get the directory's default list.
	return mode, unix.Fremovexattr(int(p.fd), accessList) == nil || changed
}

// withoutExtraGroupAccess reduces the group's permissions to those of others. It is the
// mode of a file whose group could not be kept.
func withoutExtraGroupAccess(mode uint32) uint32 { return mode&^0o070 | mode&0o070&(mode<<3) }
