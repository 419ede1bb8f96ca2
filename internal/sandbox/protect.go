package sandbox

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// protectedNames are directories that decide what programs do outside the sandbox: hooks, configuration, instructions.
var protectedNames = []string{".git", ".agents", ".codex"}

// protect adds rules that make the protected names below writable places read-only. Rules that entries made for them
// stay. A shared place has none: any user of the machine, and any confined program, can make or replace an entry
// there, so that what is found there must not change, delay or fail a start.
func (p *Plan) protect(s *survey) error {
	for _, r := range p.sorted() {
		if r.access != AccessWrite || r.path == "/" || r.isMissing() || r.temporary && !r.workspace {
			continue
		}
		if s.limit != nil && s.limit.Access(r.path) < AccessRead {
			continue // nothing of it will be granted
		}
		err := s.in(r.path, func(dir int) error { return p.protectIn(s, r, dir) })
		if err != nil && KindOf(err) == 0 {
			err = unseen(r.path, "cannot be opened, to protect what is in it", err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// protectIn protects the names in one writable place, which is open.
func (p *Plan) protectIn(s *survey, root rule, dir int) error {
	var stat unix.Stat_t
	if err := unix.Fstat(dir, &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR || !root.workspace && isShared(&stat) {
		return nil
	}
	for _, name := range protectedNames {
		if err := p.protectName(s, root, opened{fd: dir, owner: stat.Uid}, name); err != nil {
			return err
		}
	}
	return nil
}

// isShared reports whether every user can make entries in a directory.
func isShared(dir *unix.Stat_t) bool { return dir.Mode&0o002 != 0 }

// opened is an open directory.
type opened struct {
	fd    int
	owner uint32
}

func (p *Plan) protectName(s *survey, root rule, dir opened, name string) error {
	path := filepath.Join(root.path, name)
	if _, named := p.rules[path]; named {
		return nil
	}
	var stat unix.Stat_t
	err := unix.Fstatat(dir.fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		if root.workspace {
			p.set(rule{spot: spot{path: path, missing: true}, access: AccessRead})
		}
		return nil
	case err != nil:
		return unseen(path, "cannot find out what it is, to protect it", err)
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return unsafeProtected(path)
	case unix.S_IFREG:
		if name == ".git" {
			if err := p.protectGitDirectory(s, dir, path); err != nil {
				return err
			}
		}
	}
	p.set(rule{spot: found(path, &stat), access: AccessRead})
	return nil
}

func unsafeProtected(path string) error {
	return &Error{Kind: UnsafeLink, Path: path,
		Err: errors.New("is to be protected but is a symbolic link in a writable place; replace it by what it points to, or name it in an entry")}
}

// protectGitDirectory protects what a gitdir file in an open directory points to.
func (p *Plan) protectGitDirectory(s *survey, dir opened, file string) error {
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
	walked, err := s.follow(filepath.Clean(target))
	if errors.Is(err, errOutside) {
		return nil
	}
	if err != nil {
		return failed(Failed, file, "points to what cannot be found, to protect it", err)
	}
	if _, named := p.rules[walked.path]; named || p.Access(walked.path) != AccessWrite {
		return nil
	}
	for _, l := range walked.links {
		if p.Access(filepath.Dir(l.path)) == AccessWrite {
			return unsafeProtected(l.path)
		}
	}
	p.set(rule{spot: walked.spot, access: AccessRead})
	return nil
}

// maxGitFile is more than any path and the word before it.
const maxGitFile = unix.PathMax + 64

// readGitFile returns where the gitdir file of that name in an open directory points to, or "" if it is none: if it is
// no regular file, longer than a path, or of another user than root, this one and the owner of the directory. It does
// not block: what was opened is judged before it is read.
func readGitFile(dir opened, name string) (string, error) {
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
