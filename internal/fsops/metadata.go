package fsops

import (
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Type is the type of a file. The zero value is unknown.
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

// types are the types in the bits S_IFMT of a mode.
var types = [...]Type{
	unix.S_IFREG >> 12:  Regular,
	unix.S_IFDIR >> 12:  Directory,
	unix.S_IFLNK >> 12:  Symlink,
	unix.S_IFIFO >> 12:  FIFO,
	unix.S_IFSOCK >> 12: Socket,
	unix.S_IFCHR >> 12:  CharacterDevice,
	unix.S_IFBLK >> 12:  BlockDevice,
	unix.S_IFMT >> 12:   0,
}

// typeOf returns the type that is in a mode.
func typeOf(mode uint32) Type { return types[mode&unix.S_IFMT>>12] }

// Metadata describes a file of any type.
type Metadata struct {
	// Type is its type.
	Type Type
	// IsSymlink reports whether the path itself is a link.
	IsSymlink bool
	// Size is in bytes. Many files of /proc have content and size 0.
	Size int64
	// Mode has the permission bits with set-user-ID, set-group-ID and sticky.
	Mode uint32
	// UID and GID are its owner and group.
	UID, GID uint32
	// Links is the number of its names.
	Links uint64
	// ModifyTime, AccessTime and ChangeTime have the resolution of the file system.
	ModifyTime, AccessTime, ChangeTime time.Time
	// BirthTime is zero if the file system does not record it.
	BirthTime time.Time

	identity  identity
	mountRoot bool // it is a mount point
}

// identity is the same for all names of a file, and for no other file while the
// file exists.
type identity struct {
	device, inode uint64
}

// statAt describes a file.
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

// Version returns a text that changes with the content or the metadata of the file. It is made of
// device, inode, size and change times, so that two changes within one tick of the file system's
// clock, some milliseconds, can have the same version.
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

// Stat describes a file, and follows links.
func Stat(path string, options ...PathOption) (Metadata, error) {
	m, target, err := Lstat(path, options...)
	if err == nil && target != "" {
		t, _ := locate("look at", path, options)
		if m, err = t.stat(); err != nil {
			return Metadata{}, t.failed("look at", err)
		}
		m.IsSymlink = true
	}
	return m, err
}

// Lstat describes the path itself, and returns its target if it is a link.
func Lstat(path string, options ...PathOption) (m Metadata, linkTarget string, err error) {
	t, err := locate("look at", path, options)
	if err != nil {
		return Metadata{}, "", err
	}
	defer t.release()
	m, err = statAt(t.dir, t.name, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && m.IsSymlink {
		if err = unix.ELOOP; !t.noLinks {
			linkTarget, err = readLinkAt(t.dir, t.name)
		}
	}
	if err != nil {
		return Metadata{}, "", t.failed("look at", err)
	}
	return m, linkTarget, nil
}

// readLinkAt returns the target of a link.
func readLinkAt(dir descriptor, name string) (string, error) {
	target := make([]byte, unix.PathMax)
	n, err := retried(func() (int, error) { return unix.Readlinkat(int(dir), name, target) })
	return string(target[:max(n, 0)]), err
}
