package sandbox

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// sharedMemoryBytes bounds /dev, which is fresh, and of which only /dev/shm is writable.
const sharedMemoryBytes = 256 << 20

// deviceNames are the devices that every program has.
var deviceNames = []string{"null", "zero", "full", "random", "urandom", "tty"}

// deviceLinks are the links in every /dev.
var deviceLinks = [][2]string{
	{"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"},
	{"fd", "/proc/self/fd"}, {"core", "/proc/kcore"}, {"ptmx", "pts/ptmx"},
}

// hiddenFile and hiddenDirectory are names in /dev, while it is prepared, of what nobody can read.
const (
	hiddenFile      = ".hidden-file"
	hiddenDirectory = ".hidden-directory"
)

// takeDevices makes mounts of the machine's devices, and of the terminal with that name unless it is "". Sealed they are
// read-only, which leaves their modes and owners as they are, and lets them be written to.
func (v *view) takeDevices(terminal string, sealed bool) {
	take := func(path string) argument {
		v.about(path, "cannot be had inside")
		place := v.open(path, unix.O_PATH)
		tree := v.copied(place)
		v.close(place)
		return tree
	}
	attributes := uint64(unix.MOUNT_ATTR_NOSUID)
	if sealed {
		attributes |= unix.MOUNT_ATTR_RDONLY
	}
	for _, name := range deviceNames {
		tree := take("/dev/" + name)
		v.set(tree, 0, unix.MountAttr{Attr_set: attributes})
		v.devices = append(v.devices, tree)
	}
	if terminal != "" {
		v.console = take(terminal)
		v.set(v.console, 0, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID})
	}
}

// makeDevices makes a /dev of the devices that were taken.
func (v *view) makeDevices() {
	v.about("/dev", "cannot be made")
	v.dev = v.fresh("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, [2]string{"mode", "0755"}, [2]string{"size", strconv.Itoa(sharedMemoryBytes)})
	place := v.open("/dev", unix.O_PATH)
	v.call(unix.SYS_MOVE_MOUNT, v.dev, v.text(""), place, v.text(""), literal(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
	v.close(place)
	for i, name := range deviceNames {
		v.file(v.dev, name, 0o444)
		v.mountIn(v.devices[i], v.dev, name)
	}
	if v.console != (argument{}) {
		v.file(v.dev, "console", 0o444)
		v.mountIn(v.console, v.dev, "console")
	}
	for _, link := range deviceLinks {
		v.call(unix.SYS_SYMLINKAT, v.text(link[1]), v.dev, v.text(link[0]))
	}
	v.directory(v.dev, "pts", 0o755)
	v.mountIn(v.fresh("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, [2]string{"ptmxmode", "0666"}, [2]string{"mode", "0620"}), v.dev, "pts")
	v.directory(v.dev, "shm", unix.S_ISVTX|0o777)
	shared := v.call(unix.SYS_OPENAT, v.dev, v.text("shm"), literal(unix.O_PATH|unix.O_CLOEXEC), literal(0))
	v.mountIn(v.copied(shared), v.dev, "shm") // of the same file system, and stays writable
	v.close(shared)
	if v.hides(false) {
		v.file(v.dev, hiddenFile, 0)
	}
	if v.hides(true) { // bubblewrap mounts on /tmp, which it could not on what was removed
		v.directory(v.dev, hiddenDirectory, 0)
		v.mountIn(v.fresh("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, [2]string{"mode", "0"}), v.dev, hiddenDirectory)
	}
}

// sealDevices takes away what was only needed to make the view, and lets nothing more be made in /dev.
func (v *view) sealDevices() {
	v.about("/dev", "cannot be made read-only")
	if v.hides(false) {
		v.call(unix.SYS_UNLINKAT, v.dev, v.text(hiddenFile), literal(0))
	}
	if v.hides(true) {
		v.call(unix.SYS_UMOUNT2, v.text("/dev/"+hiddenDirectory), literal(unix.MNT_DETACH))
		v.call(unix.SYS_UNLINKAT, v.dev, v.text(hiddenDirectory), literal(unix.AT_REMOVEDIR))
	}
	v.set(v.dev, 0, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	v.close(v.dev)
}
