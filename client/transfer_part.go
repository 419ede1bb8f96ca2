package client

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// partFile is a file that is not whole, beside the place where it will be. It has
// a random name of its own; one that is kept has a name that tells what it is of,
// and ends with the version of that, so that it can be gone on with.
type partFile struct {
	side             *localSide
	file             *os.File
	path, kept, dest string
	// before is the file that is to be replaced; nil if there is none.
	before os.FileInfo
	// size is how much it has, of the version, which is empty if it does not matter.
	size    int64
	version string
	// head is what is downloaded; nil until that is known.
	head *execwirev1.FileMetadata
	gone bool // whether it has its place, is kept or removed
}

const (
	// partSuffix ends the names of files that are not whole.
	partSuffix = ".execwire-part"
	// keptBytes is how much a file must have to be kept.
	keptBytes = 1 << 20
	// partMark ends a file that is kept, after the version and its length.
	partMark = "execwire-part-1\n"
	// mostVersionBytes is how long a version can be.
	mostVersionBytes = 256
)

// create begins a file, or goes on with one that was kept of the same source.
func (s *localSide) create(name, source string) (*partFile, error) {
	dest := s.path(name)
	before, err := s.root.Lstat(dest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case before.IsDir():
		return nil, &fs.PathError{Op: "replace", Path: dest, Err: errIsDirectory}
	case !before.Mode().IsRegular() && before.Mode()&os.ModeSymlink == 0:
		return nil, &fs.PathError{Op: "replace", Path: dest, Err: errors.New("it is a FIFO, socket or device: only files are replaced")}
	}
	digest := sha256.Sum256([]byte(source + "\x00" + path.Base(dest)))
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails
	p := &partFile{
		side: s, dest: dest, before: before,
		path: path.Join(path.Dir(dest), "."+hex.EncodeToString(random)+partSuffix),
		kept: path.Join(path.Dir(dest), "."+hex.EncodeToString(digest[:12])+partSuffix),
	}
	if s.root.Rename(p.kept, p.path) == nil && p.goOn() {
		return p, nil
	}
	p.file, err = s.root.OpenFile(p.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// goOn opens a file that was kept, and reports whether it is one.
func (p *partFile) goOn() bool {
	info, err := p.side.root.Lstat(p.path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	file, err := p.side.root.OpenFile(p.path, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	if p.version, p.size = readTrailer(file, info.Size()); p.version != "" {
		_, err := file.Seek(p.size, io.SeekStart)
		if err == nil && file.Truncate(p.size) == nil {
			p.file = file
			return true
		}
	}
	p.version, p.size = "", 0
	_ = file.Close() // it was only looked at
	return false
}

// readTrailer reads what keep has written; the version is empty if it has not.
func readTrailer(file io.ReaderAt, size int64) (version string, dataSize int64) {
	trailer := make([]byte, min(size, mostVersionBytes+2+int64(len(partMark))))
	if _, err := file.ReadAt(trailer, size-int64(len(trailer))); err != nil {
		return "", 0
	}
	rest, ok := bytes.CutSuffix(trailer, []byte(partMark))
	if !ok || len(rest) < 2 {
		return "", 0
	}
	length := int(binary.BigEndian.Uint16(rest[len(rest)-2:]))
	rest = rest[:len(rest)-2]
	if length > len(rest) {
		return "", 0
	}
	return string(rest[len(rest)-length:]), size - int64(length+2+len(partMark))
}

// keep leaves the file for a later create, and reports whether it was worth that.
func (p *partFile) keep() bool {
	version := p.head.GetVersion()
	if p.head == nil {
		version = p.version // what there is, is from before
	}
	if p.size < keptBytes || version == "" || len(version) > mostVersionBytes {
		return false
	}
	trailer := append([]byte(version), byte(len(version)>>8), byte(len(version)))
	// The trailer says that what is before it is on the disk.
	if p.file.Sync() != nil {
		return false
	}
	if _, err := p.file.Write(append(trailer, partMark...)); err != nil {
		return false
	}
	if p.file.Close() != nil || p.side.root.Rename(p.path, p.kept) != nil {
		return false
	}
	p.gone = true
	return true
}

// restart makes the file empty again.
func (p *partFile) restart() error {
	p.size, p.version = 0, ""
	if _, err := p.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return p.file.Truncate(0)
}

// commit gives the file its mode, its time, if that is not zero, and its place.
func (p *partFile) commit(mode os.FileMode, modifyTime time.Time, noReplace bool) error {
	p.keepOwner()
	if err := p.file.Chmod(mode); err != nil {
		return err
	}
	if err := p.file.Close(); err != nil {
		return err
	}
	root := p.side.root
	if !modifyTime.IsZero() {
		if err := root.Chtimes(p.path, time.Time{}, modifyTime); err != nil {
			return err
		}
	}
	if noReplace {
		return root.Link(p.path, p.dest)
	}
	if err := root.Rename(p.path, p.dest); err != nil {
		return err
	}
	p.gone = true
	return nil
}

// keepOwner gives the file the owner of the one it replaces, where we may.
func (p *partFile) keepOwner() {
	if p.before == nil {
		return
	}
	if stat, ok := p.before.Sys().(*syscall.Stat_t); ok && p.before.Mode().IsRegular() {
		_ = p.file.Chown(int(stat.Uid), int(stat.Gid))
	}
}

// discard removes the file unless it has its place or is kept.
func (p *partFile) discard() {
	if p.gone {
		return
	}
	p.gone = true
	_ = p.file.Close() // what it has is not needed
	_ = p.side.root.Remove(p.path)
}
