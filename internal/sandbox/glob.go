package sandbox

import (
	"context"
	"errors"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// checkGlob refuses patterns that match nothing because they are malformed.
func checkGlob(member, pattern string) error {
	if err := checkPath(member, pattern); err != nil {
		return err
	}
	if _, err := path.Match(pattern, ""); err != nil {
		return invalid(member, "%q is malformed: %w", pattern, err)
	}
	for name := range strings.SplitSeq(pattern, "/") {
		if name == ".." || name == "." {
			return invalid(member, "%q has %q in it; give the path itself", pattern, name)
		}
	}
	return nil
}

// expansion expands globs within common bounds.
type expansion struct {
	depth int   // directories below the fixed part
	left  int   // directory entries
	limit *Plan // what it may look at; nil: everything
}

// expand lists what matches a pattern. It does not enter links; a link that matches is listed.
func (e *expansion) expand(ctx context.Context, member, pattern string) ([]string, error) {
	names := strings.Split(strings.Trim(path.Clean(pattern), "/"), "/")
	fixed := "/"
	for len(names) > 0 && !strings.ContainsAny(names[0], `*?[\`) {
		fixed, names = path.Join(fixed, names[0]), names[1:]
	}
	s := survey{limit: e.limit}
	defer s.close()
	walked, err := s.follow(fixed)
	if errors.Is(err, errOutside) {
		return nil, nil
	}
	if err != nil || walked.missing {
		return nil, err
	}
	if len(names) == 0 {
		return []string{walked.path}, nil
	}
	search := search{expansion: e, ctx: ctx, member: member, found: map[string]bool{}}
	if err := search.directory(walked.path, names, e.depth); err != nil {
		return nil, err
	}
	return search.matches, nil
}

// search is the expansion of one pattern.
type search struct {
	*expansion
	ctx     context.Context
	member  string
	found   map[string]bool
	matches []string // in the order in which they were found
}

// directory looks for what the rest of the pattern matches in a directory.
func (s *search) directory(dir string, names []string, depth int) error {
	if err := s.ctx.Err(); err != nil {
		return context.Cause(s.ctx)
	}
	if names[0] == "**" && len(names) > 1 {
		if err := s.directory(dir, names[1:], depth); err != nil { // it stands for no directory
			return err
		}
	}
	if e := s.limit; e != nil && e.Access(dir) < AccessRead {
		return s.towards(dir, names, depth)
	}
	entries, err := list(dir)
	if err != nil {
		return failed(Failed, dir, "cannot be listed, to expand "+s.member, err)
	}
	if s.left -= len(entries); s.left < 0 {
		return tooMany(s.member, MaxGlobEntries, "directory entries to look at; deny whole directories, or a smaller depth")
	}
	for _, entry := range entries {
		if err := s.entry(dir, entry.Name(), entry.IsDir(), names, depth); err != nil {
			return err
		}
	}
	return nil
}

// towards goes on where a directory cannot be listed, to what is granted below it.
func (s *search) towards(dir string, names []string, depth int) error {
	done := map[string]bool{}
	for _, r := range s.limit.sorted() {
		if r.access < AccessRead || r.path == dir || !within(r.path, dir) {
			continue
		}
		name, _, below := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.path, dir), "/"), "/")
		if done[name] {
			continue
		}
		done[name] = true
		if !below { // perhaps a file, or missing
			walked, err := s.limit.reachable(r.path)
			if err != nil || walked.missing {
				continue
			}
			var stat unix.Stat_t
			below = unix.Lstat(walked.path, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFDIR
		}
		if err := s.entry(dir, name, below, names, depth); err != nil {
			return err
		}
	}
	return nil
}

func (s *search) entry(dir, name string, isDirectory bool, names []string, depth int) error {
	at := path.Join(dir, name)
	if s.limit != nil && !s.limit.visible(at) {
		return nil
	}
	matches, last := true, len(names) == 1
	if names[0] != "**" {
		matches, _ = path.Match(names[0], name) // checkGlob has seen the pattern
	}
	if matches && last {
		if err := s.add(at); err != nil {
			return err
		}
	}
	if !matches || !isDirectory || depth == 0 {
		return nil
	}
	if names[0] == "**" {
		return s.directory(at, names, depth-1)
	}
	if last {
		return nil
	}
	return s.directory(at, names[1:], depth-1)
}

func (s *search) add(at string) error {
	if s.found[at] {
		return nil
	}
	s.found[at] = true
	if s.matches = append(s.matches, at); len(s.matches) > MaxPlaces {
		return tooMany(s.member, MaxPlaces, "places; deny whole directories, or a smaller depth")
	}
	return nil
}

// list lists a directory. What is none by now, or cannot be read, has nothing that a program of the same user could
// read.
func list(dir string) ([]os.DirEntry, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EACCES):
		return nil, nil
	case err != nil:
		return nil, err
	}
	file := os.NewFile(uintptr(fd), dir)
	defer file.Close()
	return file.ReadDir(-1)
}
