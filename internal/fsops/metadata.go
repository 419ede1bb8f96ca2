package fsops

import (
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Type is what a name in a directory stands for. The zero value is not known.
type Type uint8

// The types of files.
const (
	Regular Type = iota + 1
	Directory
	Symlink
	FIFO
	Socket
	CharacterDevice
	BlockDevice
)

// typeOf returns the type that is in a mode.
func typeOf(mode uint32) Type {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return Regular
	case unix.S_IFDIR:
		return Directory
	case unix.S_IFLNK:
		return Symlink
	case unix.S_IFIFO:
		return FIFO
	case unix.S_IFSOCK:
		return Socket
	case unix.S_IFCHR:
		return CharacterDevice
	case unix.S_IFBLK:
		return BlockDevice
	}
	return 0
}

// Metadata describes a file of any type.
type Metadata struct {
	// Type is what it is.
	Type Type
	// IsSymlink says that the path itself is a link.
	IsSymlink bool
	// Size is in bytes. Many files of /proc have content and size 0.
	Size int64
	// Mode has the permission bits with set-user-ID, set-group-ID and sticky.
	Mode uint32
	// UID and GID are its owner and group.
	UID, GID uint32
	// Links is how many names it has.
	Links uint64
	// ModifyTime, AccessTime and ChangeTime are as exact as its file system.
	ModifyTime, AccessTime, ChangeTime time.Time
	// BirthTime is zero where the file system does not say.
	BirthTime time.Time

	identity  identity
	mountRoot bool // it is where a file system is mounted
}

// identity is the same for all names of a file, and for no other file while the
// file exists.
type identity struct {
	device, inode uint64
}

// statAt describes what a name leads to.
func statAt(dir descriptor, name string, flags int) (Metadata, error) {
	const mask = unix.STATX_BASIC_STATS | unix.STATX_BTIME
	var st unix.Statx_t
	_, err := retried(func() (struct{}, error) { return struct{}{}, unix.Statx(int(dir), name, flags, mask, &st) })
	if err != nil {
		return Metadata{}, err
	}
	m := Metadata{
		Type:       typeOf(uint32(st.Mode)),
		IsSymlink:  typeOf(uint32(st.Mode)) == Symlink,
		Size:       int64(st.Size),
		Mode:       uint32(st.Mode) & 0o7777,
		UID:        st.Uid,
		GID:        st.Gid,
		Links:      uint64(st.Nlink),
		ModifyTime: timeOf(st.Mtime),
		AccessTime: timeOf(st.Atime),
		ChangeTime: timeOf(st.Ctime),
		identity:   identity{device: unix.Mkdev(st.Dev_major, st.Dev_minor), inode: st.Ino},
		mountRoot:  st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0,
	}
	if st.Mask&unix.STATX_BTIME != 0 {
		m.BirthTime = timeOf(st.Btime)
	}
	return m, nil
}

// Version returns a text that stays the same while neither the content nor the
// metadata of the file changes, as far as the system can tell: it is made of its
// device, inode, size and times of change, and file systems have clocks of some
// milliseconds.
func (m Metadata) Version() string {
	text := make([]byte, 0, 64)
	for i, n := range []uint64{m.identity.device, m.identity.inode, uint64(m.Size), uint64(m.ChangeTime.UnixNano()), uint64(m.ModifyTime.UnixNano())} {
		if i > 0 {
			text = append(text, '-')
		}
		text = strconv.AppendUint(text, n, 36)
	}
	return string(text)
}

func timeOf(t unix.StatxTimestamp) time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }

// stat describes an open file.
func (d descriptor) stat() (Metadata, error) { return statAt(d, "", unix.AT_EMPTY_PATH) }

// Stat describes what a path leads to.
func Stat(path string, how ...How) (Metadata, error) {
	path, err := cleaned("look at", path)
	if err != nil {
		return Metadata{}, err
	}
	if slices.Contains(how, NoSymlinks) {
		return statWithoutLinks(path)
	}
	m, err := statAt(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && m.IsSymlink {
		m, err = statAt(unix.AT_FDCWD, path, 0)
		m.IsSymlink = true
	}
	if err != nil {
		return Metadata{}, failed("look at", path, err)
	}
	return m, nil
}

// Lstat describes the path itself, and says where it leads if it is a link.
func Lstat(path string, how ...How) (m Metadata, target string, err error) {
	path, err = cleaned("look at", path)
	if err != nil {
		return Metadata{}, "", err
	}
	if slices.Contains(how, NoSymlinks) {
		m, err = statWithoutLinks(path)
		return m, "", err
	}
	if m, err = statAt(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW); err == nil && m.IsSymlink {
		target, err = readLinkAt(unix.AT_FDCWD, path)
	}
	if err != nil {
		return Metadata{}, "", failed("look at", path, err)
	}
	return m, target, nil
}

// readLinkAt returns what is in a link.
func readLinkAt(dir descriptor, name string) (string, error) {
	target := make([]byte, unix.PathMax)
	n, err := retried(func() (int, error) { return unix.Readlinkat(int(dir), name, target) })
	return string(target[:max(n, 0)]), err
}
