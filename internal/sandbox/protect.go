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
// stay.
func (p *Plan) protect(s *survey) error {
	for _, r := range p.sorted() {
		if r.access != AccessWrite || r.path == "/" || r.isMissing() {
			continue
		}
		for _, name := range protectedNames {
			if err := p.protectName(s, r, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Plan) protectName(s *survey, root rule, name string) error {
	path := filepath.Join(root.path, name)
	if _, named := p.rules[path]; named {
		return nil
	}
	var stat unix.Stat_t
	err := s.in(root.path, func(fd int) error { return unix.Fstatat(fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW) })
	switch {
	case errors.Is(err, unix.ENOENT):
		if root.workspace {
			p.set(rule{spot: spot{path: path, missing: true}, access: AccessRead})
		}
		return nil
	case errors.Is(err, unix.ENOTDIR):
		return nil // the writable place is a file
	case err != nil:
		return unseen(path, "cannot find out what it is, to protect it", err)
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return unsafeProtected(path)
	case unix.S_IFREG:
		if name == ".git" {
			if err := p.protectGitDirectory(s, path); err != nil {
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

// protectGitDirectory protects what a gitdir file points to.
func (p *Plan) protectGitDirectory(s *survey, file string) error {
	target, err := readGitFile(file)
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

// readGitFile returns where a gitdir file points to, or "" if the file is none.
func readGitFile(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
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
