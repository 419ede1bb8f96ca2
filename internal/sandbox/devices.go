package sandbox

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// sharedMemoryBytes is the size of /dev, where only /dev/shm is writable.
const sharedMemoryBytes = 256 << 20

// deviceNames are the devices in every /dev.
var deviceNames = []string{"null", "zero", "full", "random", "urandom", "tty"}

// deviceLinks are the symbolic links in every /dev.
var deviceLinks = [][2]string{
	{"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"},
	{"fd", "/proc/self/fd"}, {"core", "/proc/kcore"}, {"ptmx", "pts/ptmx"},
}

// Names in /dev, while the view is built, of an inaccessible file and directory. They
// are mounted on what is hidden.
const (
	hiddenFile      = ".hidden-file"
	hiddenDirectory = ".hidden-directory"
)

// cloneHostDevices clones the mounts of the machine's devices and of the terminal. A
// read-only mount of a device protects its mode and owner; data can still be written.
func (v *view) cloneHostDevices(terminal string, readOnly bool) {
	clone := func(path string) argument {
		v.describe(path, "cannot be mounted in the sandbox")
		file := v.open(path, unix.O_PATH)
		tree := v.cloneTree(file)
		v.close(file)
		return tree
	}
	attributes := uint64(unix.MOUNT_ATTR_NOSUID)
	if readOnly {
		attributes |= unix.MOUNT_ATTR_RDONLY
	}
	for _, name := range deviceNames {
		tree := clone("/dev/" + name)
		v.setAttr(tree, 0, unix.MountAttr{Attr_set: attributes})
		v.devices = append(v.devices, tree)
	}
	if terminal != "" {
		v.console = clone(terminal)
		v.setAttr(v.console, 0, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID})
	}
}

// makeDevices creates /dev.
func (v *view) makeDevices() {
	v.describe("/dev", "cannot be created")
	v.dev = v.newMount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, [2]string{"mode", "0755"}, [2]string{"size", strconv.Itoa(sharedMemoryBytes)})
	file := v.open("/dev", unix.O_PATH)
	v.call(unix.SYS_MOVE_MOUNT, v.dev, v.text(""), file, v.text(""), literal(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
	v.close(file)
	for i, name := range deviceNames {
		v.file(v.dev, name, 0o444)
		v.mountAt(v.devices[i], v.dev, name)
	}
	for _, fd := range v.null {
		null := v.call(unix.SYS_OPENAT, v.dev, v.text("null"), literal(unix.O_RDWR|unix.O_CLOEXEC), literal(0))
		v.call(unix.SYS_DUP3, null, literal(fd), literal(0))
		v.close(null)
	}
	if v.console != (argument{}) {
		v.file(v.dev, "console", 0o444)
		v.mountAt(v.console, v.dev, "console")
	}
	for _, link := range deviceLinks {
		v.call(unix.SYS_SYMLINKAT, v.text(link[1]), v.dev, v.text(link[0]))
	}
	v.directory(v.dev, "pts", 0o755)
	v.mountAt(v.newMount("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, [2]string{"ptmxmode", "0666"}, [2]string{"mode", "0620"}), v.dev, "pts")
	v.directory(v.dev, "shm", unix.S_ISVTX|0o777)
	shared := v.call(unix.SYS_OPENAT, v.dev, v.text("shm"), literal(unix.O_PATH|unix.O_CLOEXEC), literal(0))
	v.mountAt(v.cloneTree(shared), v.dev, "shm") // on the same file system, but stays writable
	v.close(shared)
	if v.hides(false) {
		v.file(v.dev, hiddenFile, 0)
	}
	if v.hides(true) { // a mount of its own: bwrap mounts on /tmp, which fails on a removed directory
		v.directory(v.dev, hiddenDirectory, 0)
		v.mountAt(v.newMount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, [2]string{"mode", "0"}), v.dev, hiddenDirectory)
	}
}

// finishDevices removes the hidden file and directory from /dev, and makes it
// read-only.
func (v *view) finishDevices() {
	v.describe("/dev", "cannot be made read-only")
	if v.hides(false) {
		v.call(unix.SYS_UNLINKAT, v.dev, v.text(hiddenFile), literal(0))
	}
	if v.hides(true) {
		v.call(unix.SYS_UMOUNT2, v.text("/dev/"+hiddenDirectory), literal(unix.MNT_DETACH))
		v.call(unix.SYS_UNLINKAT, v.dev, v.text(hiddenDirectory), literal(unix.AT_REMOVEDIR))
	}
	v.setAttr(v.dev, 0, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	v.close(v.dev)
}
