package sandbox

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// protectedNames are files that influence programs outside of the sandbox: they contain
// hooks, configuration and instructions.
var protectedNames = []string{".git", ".agents", ".codex"}

// protect adds rules that make protectedNames read-only in writable directories, unless
// an entry names them. Directories that other users can write to are exempt: any user
// and any confined program can create or replace a file there, which must not change,
// delay or fail the start of another program.
func (p *Plan) protect(limit *Plan) error {
	for _, r := range p.sorted() {
		if r.access != AccessWrite || r.path == "/" || r.isMissing() || r.temporary && !r.workspace {
			continue
		}
		if limit != nil && limit.Access(r.path) < AccessRead {
			continue // its contents will not be granted
		}
		err := p.protectIn(limit, r)
		if err != nil && KindOf(err) == 0 {
			err = lookupError(r.path, "cannot be opened, to protect what is in it", err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// protectIn protects the names in one writable directory.
func (p *Plan) protectIn(limit *Plan, root rule) error {
	dir, err := openNoSymlinks(root.path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	var stat unix.Stat_t
	if err := unix.Fstat(dir, &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR || !root.workspace && isShared(&stat) {
		return nil
	}
	for _, name := range protectedNames {
		if err := p.protectName(limit, root, openDir{fd: dir, owner: stat.Uid}, name); err != nil {
			return err
		}
	}
	return nil
}

// isShared reports whether every user can create files in a directory.
func isShared(dir *unix.Stat_t) bool { return dir.Mode&0o002 != 0 }

// openDir is an open directory.
type openDir struct {
	fd    int
	owner uint32
}

func (p *Plan) protectName(limit *Plan, root rule, dir openDir, name string) error {
	path := filepath.Join(root.path, name)
	if _, named := p.rules[path]; named {
		return nil
	}
	var stat unix.Stat_t
	err := unix.Fstatat(dir.fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		if root.workspace {
			p.set(rule{location: location{path: path, missing: true}, access: AccessRead})
		}
		return nil
	case err != nil:
		return lookupError(path, "cannot find out what it is, to protect it", err)
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return unsafeProtected(path)
	case unix.S_IFREG:
		if name == ".git" {
			if err := p.protectGitDirectory(limit, dir, path); err != nil {
				return err
			}
		}
	}
	p.set(rule{location: locationOf(path, &stat), access: AccessRead})
	return nil
}

func unsafeProtected(path string) error {
	return &Error{Kind: UnsafeLink, Path: path,
		Err: errors.New("must be protected, but is a symbolic link in a writable directory; replace it by what it points to, or name it in an entry")}
}

// protectGitDirectory protects the directory that a gitdir file points to.
func (p *Plan) protectGitDirectory(limit *Plan, dir openDir, file string) error {
	target, err := readGitFile(dir, filepath.Base(file))
	if err != nil {
		return failed(Failed, file, "cannot be read, to protect where it points to", err)
	}
	if target == "" {
		return nil
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(filepath.Dir(file), target)
	}
	resolved, err := resolveLinks(limit, filepath.Clean(target))
	if errors.Is(err, errHidden) {
		return nil
	}
	if err != nil {
		return failed(Failed, file, "points to what cannot be found, to protect it", err)
	}
	if _, named := p.rules[resolved.path]; named || p.Access(resolved.path) != AccessWrite {
		return nil
	}
	for _, l := range resolved.links {
		if p.Access(filepath.Dir(l.path)) == AccessWrite {
			return unsafeProtected(l.path)
		}
	}
	p.set(rule{location: resolved.location, access: AccessRead})
	return nil
}

// maxGitFile is the maximum size of a gitdir file.
const maxGitFile = unix.PathMax + 64

// readGitFile returns the path in a gitdir file. It returns "" for other files: those
// that are not regular, too long, or owned by a user other than root, this user, and
// the owner of the directory. It does not block, because it examines the open file
// before it reads it.
func readGitFile(dir openDir, name string) (string, error) {
	fd, err := unix.Openat(dir.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return "", err
	}
	trusted := stat.Uid == 0 || stat.Uid == dir.owner || stat.Uid == uint32(unix.Geteuid())
	if stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Size > maxGitFile || !trusted {
		return "", nil
	}
	text, err := io.ReadAll(io.LimitReader(file, maxGitFile))
	if err != nil {
		return "", err
	}
	target, is := strings.CutPrefix(string(text), "gitdir:")
	if !is || hasNUL(target) {
		return "", nil
	}
	return strings.TrimSpace(target), nil
}
