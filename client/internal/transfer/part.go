package transfer

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
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Part is an incomplete file beside its destination. It has a random name; one that
// is kept has a name derived from its source, and ends with the version of the source,
// to resume from it.
type Part struct {
	side             *Local
	File             *os.File // to write to
	path, kept, dest string
	// before is the file to replace; nil if there is none.
	before os.FileInfo
	// Size is how much of the version it has; the version is empty if irrelevant.
	Size    int64
	Version string
	// Head describes the downloaded file; nil until known.
	Head *execwirev1.FileMetadata
	done bool // renamed, kept or removed
}

const (
	// partSuffix is the suffix of incomplete files.
	partSuffix = ".execwire-part"
	// minKeptBytes is the minimum size of a file that is kept.
	minKeptBytes = 1 << 20
	// partMark ends a kept file, after the version and its length.
	partMark = "execwire-part-1\n"
	// maxVersionBytes limits the length of a version.
	maxVersionBytes = 256
)

// Create creates a file, or resumes one that was kept from the same source.
func (s *Local) Create(name, source string) (*Part, error) {
	if err := s.checkName(name); err != nil {
		return nil, err
	}
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
	p := &Part{
		side: s, dest: dest, before: before,
		path: path.Join(path.Dir(dest), "."+hex.EncodeToString(random)+partSuffix),
		kept: path.Join(path.Dir(dest), "."+hex.EncodeToString(digest[:12])+partSuffix),
	}
	if s.root.Rename(p.kept, p.path) == nil && p.resume() {
		return p, nil
	}
	_ = s.root.Remove(p.path) // what was kept and is not valid, whatever it is
	p.File, err = s.root.OpenFile(p.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// resume opens a kept file, and reports whether it is valid.
func (p *Part) resume() bool {
	info, err := p.side.root.Lstat(p.path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	file, err := p.side.root.OpenFile(p.path, os.O_RDWR|noFollow|nonBlocking, 0)
	if err != nil {
		return false
	}
	// Not every system can refuse to follow a link that has just replaced the file.
	if opened, err := file.Stat(); err != nil || !os.SameFile(info, opened) {
		_ = file.Close() // it was only examined
		return false
	}
	if p.Version, p.Size = readTrailer(file, info.Size()); p.Version != "" {
		_, err := file.Seek(p.Size, io.SeekStart)
		if err == nil && file.Truncate(p.Size) == nil {
			p.File = file
			return true
		}
	}
	p.Version, p.Size = "", 0
	_ = file.Close() // it was only examined
	return false
}

// readTrailer reads the trailer written by Keep; the version is empty if there is none.
func readTrailer(file io.ReaderAt, size int64) (version string, dataSize int64) {
	trailer := make([]byte, min(size, maxVersionBytes+2+int64(len(partMark))))
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

// Keep leaves the file for a later Create, and reports whether it was large enough.
func (p *Part) Keep() bool {
	version := p.Head.GetVersion()
	if p.Head == nil {
		version = p.Version // the content is that of the earlier version
	}
	if p.Size < minKeptBytes || version == "" || len(version) > maxVersionBytes {
		return false
	}
	trailer := append([]byte(version), byte(len(version)>>8), byte(len(version)))
	// The trailer guarantees that the data before it is on disk.
	if p.File.Sync() != nil {
		return false
	}
	if _, err := p.File.Write(append(trailer, partMark...)); err != nil {
		return false
	}
	if p.File.Close() != nil || p.side.root.Rename(p.path, p.kept) != nil {
		return false
	}
	p.done = true
	return true
}

// Restart truncates the file.
func (p *Part) Restart() error {
	p.Size, p.Version = 0, ""
	if _, err := p.File.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return p.File.Truncate(0)
}

// Commit sets mode and time, if not zero, and renames the file to its destination.
func (p *Part) Commit(mode os.FileMode, modifyTime time.Time, noReplace bool) error {
	p.keepOwner()
	if err := p.File.Chmod(mode); err != nil {
		return err
	}
	if err := p.File.Close(); err != nil {
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
	p.done = true
	return nil
}

// Discard removes the file unless it was renamed or kept.
func (p *Part) Discard() {
	if p.done {
		return
	}
	p.done = true
	_ = p.File.Close() // its content is not needed
	_ = p.side.root.Remove(p.path)
}
