package sandbox

import (
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// view builds the file system of a program, in a mount namespace that bwrap then uses.
// There, nothing can be written except what the plan grants, and mounts that are made
// outside later do not appear. Each path is opened without following links and mounted
// on by descriptor, so that other programs cannot redirect a mount. Mount points are
// only created in new file systems, never in existing ones.
type view struct {
	childCalls
	mounts      []*viewMount // directories before their contents
	executables []executable // files that are executed although a mount may hide them
	null        []int        // descriptors that become /dev/null of the sandbox
	devices     []argument
	console     argument
	dev         argument // the new /dev
}

// executable is a file that is opened on a read-only mount, because programs can find
// it through /proc.
type executable struct {
	path  string
	id    fileID // zero accepts any file
	fd    int
	flags int // of dup3(2)
}

// viewMount is a mount in the view.
type viewMount struct {
	mount
	parent    *viewMount // the mount that contains it, or nil
	directory bool
	clone     argument        // the mount, cloned before others changed its path
	tmpfs     argument        // an empty file system that hides it, if grantedBelow
	dirs      map[string]bool // directories created in tmpfs
}

// parentHas reports whether the parent is a mount with the given access.
func (m *viewMount) parentHas(access Access) bool {
	return m.parent != nil && m.parent.access == access
}

// needsEarlyClone reports whether the mount must be cloned before everything becomes
// read-only and paths are hidden.
func (m *viewMount) needsEarlyClone() bool {
	switch {
	case m.path == "/" || m.access == AccessNone:
		return false
	case m.parentHas(AccessNone):
		return true
	}
	return m.access == AccessWrite && !m.parentHas(AccessWrite)
}

// hides reports whether some directory (or file, if directory is not set) is hidden
// entirely.
func (v *view) hides(directory bool) bool {
	return slices.ContainsFunc(v.mounts, func(m *viewMount) bool {
		return m.access == AccessNone && !m.grantedBelow && m.directory == directory
	})
}

// build adds the calls that build the view. terminal is the path of the terminal, or
// "".
func (v *view) build(terminal string, readOnlyDevices bool) {
	v.describe("", "a mount namespace cannot be created")
	mask := v.call(unix.SYS_UMASK, literal(0))
	v.call(unix.SYS_UNSHARE, literal(unix.CLONE_NEWNS))
	v.setAttrAt(cwdFD, "/", unix.AT_RECURSIVE, unix.MountAttr{Propagation: unix.MS_PRIVATE})
	v.cloneHostDevices(terminal, readOnlyDevices)
	v.describe("", "set-user-id programs and devices cannot be disabled on mounts")
	v.setAttrAt(cwdFD, "/", unix.AT_RECURSIVE, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV})
	for _, m := range v.mounts {
		if m.needsEarlyClone() {
			v.describe(m.path, pathChanged)
			mountPoint := v.openNoSymlinks(m.path)
			v.checkIdentity(mountPoint, m.id)
			m.clone = v.cloneTree(mountPoint)
			v.close(mountPoint)
		}
	}
	if !v.rootIsWritable() {
		v.describe("", "mounts cannot be made read-only")
		v.setAttrAt(cwdFD, "/", unix.AT_RECURSIVE, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
		v.setAttrAt(cwdFD, "/proc", 0, unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}) // bwrap writes its uid_map there
	}
	v.makeDevices()
	for _, file := range v.executables {
		v.openExecutable(file)
	}
	for _, m := range v.mounts {
		if m.path != "/" {
			v.addMount(m)
		}
	}
	for _, m := range v.mounts {
		if m.tmpfs != (argument{}) {
			v.describe(m.path, "cannot be made read-only")
			v.setAttr(m.tmpfs, 0, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
			v.close(m.tmpfs)
		}
	}
	v.finishDevices()
	v.call(unix.SYS_UMASK, mask)
}

// openExecutable opens a file before it may be hidden.
func (v *view) openExecutable(file executable) {
	v.describe(file.path, "cannot be executed")
	mountPoint := v.openNoSymlinks(file.path)
	if file.id != (fileID{}) {
		v.checkIdentity(mountPoint, file.id)
	}
	tree := v.cloneTree(mountPoint)
	v.close(mountPoint)
	v.setAttr(tree, unix.AT_RECURSIVE, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	v.call(unix.SYS_DUP3, tree, literal(file.fd), literal(file.flags))
	v.close(tree)
}

// pathChanged is the error for a path that cannot be opened, or is another file than
// before.
const pathChanged = "is not what it was when the policy was resolved"

func (v *view) rootIsWritable() bool {
	return len(v.mounts) > 0 && v.mounts[0].path == "/" && v.mounts[0].access == AccessWrite
}

// addMount mounts m at its path.
func (v *view) addMount(m *viewMount) {
	v.describe(m.path, pathChanged)
	if m.parentHas(AccessNone) {
		v.makeMountPoint(m)
	}
	mountPoint := v.openNoSymlinks(m.path)
	if !m.parentHas(AccessNone) {
		v.checkIdentity(mountPoint, m.id)
	}
	switch {
	case m.access == AccessNone && m.grantedBelow:
		m.tmpfs = v.newMount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, [2]string{"mode", "0111"})
		v.call(unix.SYS_MOVE_MOUNT, m.tmpfs, v.text(""), mountPoint, v.text(""), literal(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
		v.close(mountPoint)
		return
	case m.access == AccessNone:
		name := hiddenFile
		if m.directory {
			name = hiddenDirectory
		}
		hidden := v.call(unix.SYS_OPENAT, v.dev, v.text(name), literal(unix.O_PATH|unix.O_CLOEXEC), literal(0))
		m.clone = v.cloneTree(hidden)
		v.close(hidden)
	case !m.needsEarlyClone() && m.parent == nil:
		v.close(mountPoint) // it is read-only like everything else
		return
	case !m.needsEarlyClone():
		m.clone = v.cloneTree(mountPoint)
	}
	if m.access != AccessWrite {
		v.setAttr(m.clone, unix.AT_RECURSIVE, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	}
	v.mount(m.clone, mountPoint)
}

// makeMountPoint creates the mount point of m in the tmpfs that hides its parent.
func (v *view) makeMountPoint(m *viewMount) {
	rest, _ := strings.CutPrefix(m.path, strings.TrimSuffix(m.parent.path, "/")+"/")
	var missing []string
	for dir := filepath.Dir(rest); dir != "." && !m.parent.dirs[dir]; dir = filepath.Dir(dir) {
		missing = append([]string{dir}, missing...)
	}
	if m.parent.dirs == nil {
		m.parent.dirs = map[string]bool{}
	}
	for _, dir := range missing {
		v.directory(m.parent.tmpfs, dir, 0o755)
		m.parent.dirs[dir] = true
	}
	switch {
	case !m.directory:
		v.file(m.parent.tmpfs, rest, 0o444)
	case !m.parent.dirs[rest]:
		v.directory(m.parent.tmpfs, rest, 0o755)
		m.parent.dirs[rest] = true
	}
}
