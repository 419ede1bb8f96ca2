package sandbox

import "golang.org/x/sys/unix"

// openNoSymlinks opens a path like the function of that name.
func (p *childCalls) openNoSymlinks(path string) argument {
	const flags, resolve = unix.O_PATH | unix.O_CLOEXEC, unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	return p.call(unix.SYS_OPENAT2, cwdFD, p.text(path), p.words(flags, 0, resolve), literal(unix.SizeofOpenHow))
}

// Offsets in struct statx.
const (
	statxSize   = 256
	statxInode  = 32
	statxDevice = 136
)

// checkIdentity makes the child fail if an open file is not the given one.
func (p *childCalls) checkIdentity(fd argument, is fileID) {
	buffer := p.buffer(statxSize)
	p.call(unix.SYS_STATX, fd, p.text(""), literal(unix.AT_EMPTY_PATH), literal(unix.STATX_INO), buffer)
	p.require(buffer, statxInode, is.ino)
	p.require(buffer, statxDevice, uint64(unix.Major(is.dev))|uint64(unix.Minor(is.dev))<<32)
}

// open opens a path on which other programs have no influence.
func (p *childCalls) open(path string, flags int) argument {
	return p.call(unix.SYS_OPENAT, cwdFD, p.text(path), literal(flags|unix.O_CLOEXEC), literal(0))
}

func (p *childCalls) close(fd argument) { p.call(unix.SYS_CLOSE, fd) }

// cloneTree clones the mounts of an open file and everything below it, without
// attaching them.
func (p *childCalls) cloneTree(file argument) argument {
	return p.call(unix.SYS_OPEN_TREE, file, p.text(""),
		literal(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE))
}

// mount attaches a mount to an open file, and closes both.
func (p *childCalls) mount(tree, file argument) {
	p.mountAt(tree, file, "")
	p.close(file)
}

// mountAt attaches a mount to a file in an open directory, on which other programs have
// no influence, and closes the mount.
func (p *childCalls) mountAt(tree, dir argument, name string) {
	flags := unix.MOVE_MOUNT_F_EMPTY_PATH
	if name == "" {
		flags |= unix.MOVE_MOUNT_T_EMPTY_PATH
	}
	p.call(unix.SYS_MOVE_MOUNT, tree, p.text(""), dir, p.text(name), literal(flags))
	p.close(tree)
}

// setAttr changes the attributes of an open mount.
func (p *childCalls) setAttr(mount argument, flags int, attr unix.MountAttr) {
	p.setAttrAt(mount, "", flags|unix.AT_EMPTY_PATH, attr)
}

// setAttrAt changes the attributes of the mount at a path.
func (p *childCalls) setAttrAt(dir argument, path string, flags int, attr unix.MountAttr) {
	p.call(unix.SYS_MOUNT_SETATTR, dir, p.text(path), literal(flags),
		p.words(attr.Attr_set, attr.Attr_clr, attr.Propagation, attr.Userns_fd), literal(unix.MOUNT_ATTR_SIZE_VER0))
}

// newMount creates a file system, without attaching it.
func (p *childCalls) newMount(kind string, attributes int, options ...[2]string) argument {
	fs := p.call(unix.SYS_FSOPEN, p.text(kind), literal(unix.FSOPEN_CLOEXEC))
	for _, option := range options {
		p.call(unix.SYS_FSCONFIG, fs, literal(unix.FSCONFIG_SET_STRING), p.text(option[0]), p.text(option[1]), literal(0))
	}
	p.call(unix.SYS_FSCONFIG, fs, literal(unix.FSCONFIG_CMD_CREATE), literal(0), literal(0), literal(0))
	mount := p.call(unix.SYS_FSMOUNT, fs, literal(unix.FSMOUNT_CLOEXEC), literal(attributes))
	p.close(fs)
	return mount
}

// directory and file create a directory or a file in an open directory. The umask is 0.
func (p *childCalls) directory(dir argument, name string, mode int) {
	p.call(unix.SYS_MKDIRAT, dir, p.text(name), literal(mode))
}

func (p *childCalls) file(dir argument, name string, mode int) {
	p.call(unix.SYS_MKNODAT, dir, p.text(name), literal(unix.S_IFREG|mode), literal(0))
}

// mayMount reports whether this process has CAP_SYS_ADMIN, as root outside of
// containers has.
func mayMount() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	err := unix.Capget(&header, &sets[0])
	return err == nil && sets[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}
