package sandbox

import (
	"context"
	"errors"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// checkGlob rejects malformed patterns.
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

// expansion is the expansion of all globs of a policy.
type expansion struct {
	depth     int   // directory levels below the fixed part of a glob
	remaining int   // directory entries that may still be examined
	limit     *Plan // only what it grants is examined; nil: everything
}

// expand returns the paths that match a pattern. It does not follow links; a link can
// match.
func (e *expansion) expand(ctx context.Context, member, pattern string) ([]string, error) {
	names := strings.Split(strings.Trim(path.Clean(pattern), "/"), "/")
	fixed := "/"
	for len(names) > 0 && !strings.ContainsAny(names[0], `*?[\`) {
		fixed, names = path.Join(fixed, names[0]), names[1:]
	}
	resolved, err := resolveLinks(e.limit, fixed)
	if errors.Is(err, errHidden) {
		return nil, nil
	}
	if err != nil || resolved.missing {
		return nil, err
	}
	if len(names) == 0 {
		return []string{resolved.path}, nil
	}
	search := search{expansion: e, ctx: ctx, member: member, found: map[string]bool{}}
	if err := search.directory(resolved.path, names, e.depth); err != nil {
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

// directory searches a directory for the remaining components of the pattern.
func (s *search) directory(dir string, names []string, depth int) error {
	if err := s.ctx.Err(); err != nil {
		return context.Cause(s.ctx)
	}
	if names[0] == "**" && len(names) > 1 {
		if err := s.directory(dir, names[1:], depth); err != nil { // "**" matches no component
			return err
		}
	}
	if e := s.limit; e != nil && e.Access(dir) < AccessRead {
		return s.searchGranted(dir, names, depth)
	}
	entries, err := list(dir)
	if err != nil {
		return failed(Failed, dir, "cannot be listed, to expand "+s.member, err)
	}
	if s.remaining -= len(entries); s.remaining < 0 {
		return tooMany(s.member, MaxGlobEntries, "directory entries to look at; deny whole directories, or use a smaller depth")
	}
	for _, entry := range entries {
		if err := s.entry(dir, entry.Name(), entry.IsDir(), names, depth); err != nil {
			return err
		}
	}
	return nil
}

// searchGranted continues the search in a directory that may not be listed, with the
// granted paths below it.
func (s *search) searchGranted(dir string, names []string, depth int) error {
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
		if !below { // it may be a file, or missing
			resolved, err := resolveLinks(s.limit, r.path)
			if err != nil || resolved.missing {
				continue
			}
			var stat unix.Stat_t
			below = unix.Lstat(resolved.path, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFDIR
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
		matches, _ = path.Match(names[0], name) // checkGlob has validated the pattern
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
	if s.matches = append(s.matches, at); len(s.matches) > MaxPaths {
		return tooMany(s.member, MaxPaths, "paths; deny whole directories, or use a smaller depth")
	}
	return nil
}

// list returns the entries of a directory. A directory that cannot be read is empty: a
// program of the same user could not read it either.
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
