package sandbox

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// openWithoutLinks opens a path as openPlace does.
func (p *preparation) openWithoutLinks(path string) argument {
	const flags, resolve = unix.O_PATH | unix.O_CLOEXEC, unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	return p.call(unix.SYS_OPENAT2, here, p.text(path), p.words(flags, 0, resolve), literal(unix.SizeofOpenHow))
}

// Where a struct statx has the number of the file, and those of its device.
const (
	statxSize   = 256
	statxInode  = 32
	statxDevice = 136
)

// same has it fail unless what is open is that file.
func (p *preparation) same(fd argument, is identity) {
	if p.looked == (argument{}) {
		p.looked = p.room(statxSize)
	}
	p.call(unix.SYS_STATX, fd, p.text(""), literal(unix.AT_EMPTY_PATH), literal(unix.STATX_INO), p.looked)
	p.equal(p.looked, statxInode, is.ino)
	p.equal(p.looked, statxDevice, uint64(unix.Major(is.dev))|uint64(unix.Minor(is.dev))<<32)
}

// open opens a path of this machine's own, where no program can write.
func (p *preparation) open(path string, flags int) argument {
	return p.call(unix.SYS_OPENAT, here, p.text(path), literal(flags|unix.O_CLOEXEC), literal(0))
}

func (p *preparation) close(fd argument) { p.call(unix.SYS_CLOSE, fd) }

// write writes a text to a file that is there.
func (p *preparation) write(path, text string) {
	fd := p.open(path, unix.O_WRONLY)
	p.call(unix.SYS_WRITE, fd, p.text(text), literal(len(text)))
	p.close(fd)
}

// copied is a mount of what is open, with all that is mounted below it, which is nowhere yet.
func (p *preparation) copied(place argument) argument {
	return p.call(unix.SYS_OPEN_TREE, place, p.text(""),
		literal(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE))
}

// mount puts a mount on what is open, and gives both descriptors up.
func (p *preparation) mount(tree, place argument) {
	p.mountIn(tree, place, "")
	p.close(place)
}

// mountIn puts a mount on something in an open directory where no program can write, and gives its descriptor up.
func (p *preparation) mountIn(tree, dir argument, name string) {
	flags := unix.MOVE_MOUNT_F_EMPTY_PATH
	if name == "" {
		flags |= unix.MOVE_MOUNT_T_EMPTY_PATH
	}
	p.call(unix.SYS_MOVE_MOUNT, tree, p.text(""), dir, p.text(name), literal(flags))
	p.close(tree)
}

// set changes attributes of the mount that a descriptor is of.
func (p *preparation) set(mount argument, flags int, attr unix.MountAttr) {
	p.setAt(mount, "", flags|unix.AT_EMPTY_PATH, attr)
}

// setAt changes attributes of the mount at a path.
func (p *preparation) setAt(dir argument, path string, flags int, attr unix.MountAttr) {
	p.call(unix.SYS_MOUNT_SETATTR, dir, p.text(path), literal(flags),
		p.words(attr.Attr_set, attr.Attr_clr, attr.Propagation, attr.Userns_fd), literal(unix.MOUNT_ATTR_SIZE_VER0))
}

// fresh is a mount of a new file system, which is nowhere yet.
func (p *preparation) fresh(kind string, attributes int, options ...[2]string) argument {
	fs := p.call(unix.SYS_FSOPEN, p.text(kind), literal(unix.FSOPEN_CLOEXEC))
	for _, option := range options {
		p.call(unix.SYS_FSCONFIG, fs, literal(unix.FSCONFIG_SET_STRING), p.text(option[0]), p.text(option[1]), literal(0))
	}
	p.call(unix.SYS_FSCONFIG, fs, literal(unix.FSCONFIG_CMD_CREATE), literal(0), literal(0), literal(0))
	mount := p.call(unix.SYS_FSMOUNT, fs, literal(unix.FSMOUNT_CLOEXEC), literal(attributes))
	p.close(fs)
	return mount
}

// directory and file make one in an open directory. Nothing is taken from their modes.
func (p *preparation) directory(dir argument, name string, mode int) {
	p.call(unix.SYS_MKDIRAT, dir, p.text(name), literal(mode))
}

func (p *preparation) file(dir argument, name string, mode int) {
	p.call(unix.SYS_MKNODAT, dir, p.text(name), literal(unix.S_IFREG|mode), literal(0))
}

// ownUsers makes a user namespace in which this user has all power over mounts, and is still the same user.
func (p *preparation) ownUsers() {
	p.about("", "there is no user namespace")
	p.call(unix.SYS_UNSHARE, literal(unix.CLONE_NEWUSER))
	identity := func(id int) string { return strconv.Itoa(id) + " " + strconv.Itoa(id) + " 1\n" }
	p.write("/proc/self/setgroups", "deny")
	p.write("/proc/self/gid_map", identity(unix.Getegid()))
	p.write("/proc/self/uid_map", identity(unix.Geteuid()))
}

// mayMount tells whether this process has power over mounts, as root has that is not kept in a container.
func mayMount() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	err := unix.Capget(&header, &sets[0])
	return err == nil && sets[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}
