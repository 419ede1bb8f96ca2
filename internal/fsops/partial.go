package fsops

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strconv"

	"golang.org/x/sys/unix"
)

// partial is the content of a file that is not in its place yet.
type partial struct {
	destination
	fd       descriptor
	hidden   string // its name in the directory; empty where it needs none
	received int64
	digest   hash.Hash
}

// newPartial makes a file in the directory of a destination, which it releases if
// it fails. The file has no name, unless named asks for one or the file system
// wants it.
func newPartial(d destination, mode uint32, named bool) (*partial, error) {
	p := &partial{destination: d, fd: -1, digest: sha256.New()}
	err := error(unix.EOPNOTSUPP)
	if !named {
		p.fd, err = openAt(d.dir, ".", unix.O_CLOEXEC|unix.O_WRONLY|unix.O_TMPFILE, mode)
	}
	switch err {
	case unix.EOPNOTSUPP, unix.EISDIR, unix.EINVAL:
		p.hidden = hiddenName()
		p.fd, err = openAt(d.dir, p.hidden, always|unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, mode)
	}
	if err != nil {
		d.dir.release()
		return nil, failed("write", d.path, err)
	}
	return p, nil
}

// hiddenName is one that nobody has thought of.
func hiddenName() string {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // which never fails
	return ".execwire-" + hex.EncodeToString(random)
}

func (p *partial) write(data []byte) error {
	if err := p.fd.write(data); err != nil {
		return failed("write", p.path, err)
	}
	p.received += int64(len(data))
	_, _ = p.digest.Write(data) // which never fails
	return nil
}

// release drops what was received, unless it is in its place.
func (p *partial) release() {
	if p.hidden != "" {
		_ = unix.Unlinkat(int(p.dir), p.hidden, 0) // nobody can be told
	}
	p.fd.release()
	p.dir.release()
}

// put puts the content into its place. Nothing of what can fail comes after
// that, but writing the name to the disk.
func (p *partial) put(how *Replacement) error {
	err := p.dress(how)
	if err == nil && how.Sync {
		_, err = retried(func() (struct{}, error) { return struct{}{}, unix.Fsync(int(p.fd)) })
	}
	if err == nil {
		err = p.fd.flush()
	}
	if err == nil {
		err = p.move(how.IfMissing)
	}
	if err == nil && how.Sync {
		err = p.dir.syncDirectory()
	}
	if err != nil {
		return failedAt("write", p.place, err)
	}
	return nil
}

// move gives the file its name: in the place of what has it, unless there must be
// nothing. Where nothing was found it tries without that first.
func (p *partial) move(ifMissing bool) error {
	if p.hidden == "" && (ifMissing || p.found.Type == 0) {
		err := p.link(p.name)
		if err != unix.EEXIST || ifMissing {
			return err
		}
	}
	if p.hidden == "" {
		name := hiddenName()
		if err := p.link(name); err != nil {
			return err
		}
		p.hidden = name
	}
	var err error
	if ifMissing {
		err = p.renameToNothing()
	} else {
		err = unix.Renameat(int(p.dir), p.hidden, int(p.dir), p.name)
	}
	if err == nil {
		p.hidden = ""
	}
	return err
}

// link gives a file without a name its first.
func (p *partial) link(name string) error {
	err := unix.Linkat(int(p.fd), "", int(p.dir), name, unix.AT_EMPTY_PATH)
	if err == unix.ENOENT || err == unix.EPERM { // older kernels want a privilege for it
		err = unix.Linkat(unix.AT_FDCWD, p.fd.procPath(), int(p.dir), name, unix.AT_SYMLINK_FOLLOW)
	}
	return err
}

// renameToNothing gives the file a name that nothing must have.
func (p *partial) renameToNothing() error {
	err := unix.Renameat2(int(p.dir), p.hidden, int(p.dir), p.name, unix.RENAME_NOREPLACE)
	if err != unix.EINVAL {
		return err
	}
	// Not every file system can.
	if err := unix.Linkat(int(p.dir), p.hidden, int(p.dir), p.name, 0); err != nil {
		return err
	}
	return unix.Unlinkat(int(p.dir), p.hidden, 0)
}

// procPath is a path of the open file, whatever its names.
func (d descriptor) procPath() string { return "/proc/self/fd/" + strconv.Itoa(int(d)) }

// flush has a file system report now what it would report when the file is
// closed.
func (d descriptor) flush() error {
	fd, err := unix.FcntlInt(uintptr(d), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return descriptor(fd).close()
}

// syncDirectory waits until the names in a directory are on the disk.
func (d descriptor) syncDirectory() error {
	fd, err := openAt(d, ".", asDirectory, 0)
	if err != nil {
		return err
	}
	defer fd.release()
	_, err = retried(func() (struct{}, error) { return struct{}{}, unix.Fsync(int(fd)) })
	return err
}
