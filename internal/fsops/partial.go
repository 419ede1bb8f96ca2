package fsops

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strconv"

	"golang.org/x/sys/unix"
)

// partial is a file that is being written and not in its place yet.
type partial struct {
	destination
	fd       descriptor
	tempName string // its name in the directory; empty where it needs none
	digest   hash.Hash
}

// newPartial creates a file in the directory of a destination, which it releases if it fails. The
// file has no name, unless named is set or the file system requires one.
func newPartial(d destination, mode uint32, named bool) (*partial, error) {
	p := &partial{destination: d, fd: -1, digest: sha256.New()}
	err := error(unix.EOPNOTSUPP)
	if !named {
		p.fd, err = openAt(d.dir, ".", unix.O_CLOEXEC|unix.O_WRONLY|unix.O_TMPFILE, mode)
	}
	switch err {
	case unix.EOPNOTSUPP, unix.EISDIR, unix.EINVAL:
		p.tempName = temporaryName()
		p.fd, err = openAt(d.dir, p.tempName, commonFlags|unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, mode)
	}
	if err != nil {
		d.dir.release()
		return nil, failed("write", d.path, err)
	}
	return p, nil
}

// temporaryName returns a random name.
func temporaryName() string {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // which never fails
	return ".execwire-" + hex.EncodeToString(random)
}

func (p *partial) write(data []byte) error {
	if err := p.fd.write(data); err != nil {
		return failed("write", p.path, err)
	}
	_, _ = p.digest.Write(data) // which never fails
	return nil
}

// release removes the file, unless it is in its place. There may be none.
func (p *partial) release() {
	if p == nil {
		return
	}
	if p.tempName != "" {
		_ = unix.Unlinkat(int(p.dir), p.tempName, 0) // an error cannot be reported
	}
	p.fd.release()
	p.dir.release()
}

// moveIntoPlace moves the file to its place. Only the sync of the directory can fail after that.
func (p *partial) moveIntoPlace(request *Replacement) error {
	err := p.applyMetadata(request)
	if err == nil && request.Sync {
		_, err = retried(func() (struct{}, error) { return struct{}{}, unix.Fsync(int(p.fd)) })
	}
	if err == nil {
		err = p.fd.flush()
	}
	if err == nil {
		err = p.linkOrRename(request.IfMissing)
	}
	if err == nil && request.Sync {
		err = p.dir.syncDirectory()
	}
	if err != nil {
		return failedAt("write", p.place, err)
	}
	return nil
}

// linkOrRename gives the file its name. It replaces an existing file unless ifMissing is set. If there was
// none it first tries to link without replacing.
func (p *partial) linkOrRename(ifMissing bool) error {
	if p.tempName == "" && (ifMissing || p.found.Type == 0) {
		err := p.link(p.name)
		if err != unix.EEXIST || ifMissing {
			return err
		}
	}
	if p.tempName == "" {
		name := temporaryName()
		if err := p.link(name); err != nil {
			return err
		}
		p.tempName = name
	}
	var err error
	if ifMissing {
		err = p.renameNoReplace()
	} else {
		err = unix.Renameat(int(p.dir), p.tempName, int(p.dir), p.name)
	}
	if err == nil {
		p.tempName = ""
	}
	return err
}

// link gives a name to a file without one.
func (p *partial) link(name string) error {
	err := unix.Linkat(int(p.fd), "", int(p.dir), name, unix.AT_EMPTY_PATH)
	if err == unix.ENOENT || err == unix.EPERM { // older kernels want a privilege for it
		err = unix.Linkat(unix.AT_FDCWD, p.fd.procPath(), int(p.dir), name, unix.AT_SYMLINK_FOLLOW)
	}
	return err
}

// renameNoReplace gives the file a name that must not exist.
func (p *partial) renameNoReplace() error {
	err := unix.Renameat2(int(p.dir), p.tempName, int(p.dir), p.name, unix.RENAME_NOREPLACE)
	if err != unix.EINVAL {
		return err
	}
	// Not every file system supports the flag.
	if err := unix.Linkat(int(p.dir), p.tempName, int(p.dir), p.name, 0); err != nil {
		return err
	}
	return unix.Unlinkat(int(p.dir), p.tempName, 0)
}

// procPath returns a path of the open file that does not depend on its names.
func (d descriptor) procPath() string { return "/proc/self/fd/" + strconv.Itoa(int(d)) }

// flush makes a file system report the errors that it would report at the close.
func (d descriptor) flush() error {
	fd, err := unix.FcntlInt(uintptr(d), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return descriptor(fd).close()
}

// syncDirectory writes the names in a directory to the disk.
func (d descriptor) syncDirectory() error {
	fd, err := openAt(d, ".", openDirRead, 0)
	if err != nil {
		return err
	}
	defer fd.release()
	_, err = retried(func() (struct{}, error) { return struct{}{}, unix.Fsync(int(fd)) })
	return err
}
