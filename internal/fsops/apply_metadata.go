package fsops

import (
	"time"

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
	return p.fd.setModifyTime(request.ModifyTime)
}

// setModifyTime sets the modification time of the file, unless it is zero.
func (d descriptor) setModifyTime(at time.Time) error {
	if at.IsZero() {
		return nil
	}
	modified, err := unix.TimeToTimespec(at)
	if err != nil {
		return err
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, d.procPath(), []unix.Timespec{{Nsec: unix.UTIME_OMIT}, modified}, 0)
}

// Changes are changes of metadata. The zero value changes nothing.
type Changes struct {
	// Permissions are the bits 07777; nil leaves them.
	Permissions *uint32
	// ModifyTime leaves the time if it is zero.
	ModifyTime time.Time
	// Touch sets the modification and access time to the current one, instead of ModifyTime.
	Touch bool
}

// SetMetadata changes the metadata of a file of any type, following links, and returns it.
func SetMetadata(path string, changes Changes, options ...PathOption) (Metadata, error) {
	t, err := locate("change", path, options)
	if err != nil {
		return Metadata{}, err
	}
	defer t.release()
	fd, err := t.open(unix.O_CLOEXEC|unix.O_PATH, 0)
	if err != nil {
		return Metadata{}, t.failed("change", err)
	}
	defer fd.release()
	m, err := fd.change(changes)
	if err != nil {
		return Metadata{}, t.failed("change", err)
	}
	return m, nil
}

func (d descriptor) change(changes Changes) (Metadata, error) {
	switch m, err := d.stat(); {
	case err != nil:
		return Metadata{}, err
	case m.Type == Symlink: // it was not to be followed
		return Metadata{}, unix.ELOOP
	}
	if changes.Permissions != nil {
		if err := unix.Chmod(d.procPath(), *changes.Permissions); err != nil {
			return Metadata{}, err
		}
	}
	err := d.setModifyTime(changes.ModifyTime)
	if changes.Touch {
		now := unix.Timespec{Nsec: unix.UTIME_NOW}
		err = unix.UtimesNanoAt(unix.AT_FDCWD, d.procPath(), []unix.Timespec{now, now}, 0)
	}
	if err != nil {
		return Metadata{}, err
	}
	return d.stat()
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
