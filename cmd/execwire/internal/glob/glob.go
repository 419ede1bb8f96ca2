// Package glob expands patterns of paths on the files of a server, as a shell does on those
// of this machine.
package glob

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/execwire/execwire/client"
)

// Files are the files of a server.
type Files interface {
	// ReadDir returns the entries of a directory, in any order.
	ReadDir(ctx context.Context, path string) ([]client.DirEntry, error)
	// Lstat describes a path without following a link.
	Lstat(ctx context.Context, path string) (client.FileInfo, error)
}

// IsPattern reports whether a path has wildcards.
func IsPattern(name string) bool { return strings.ContainsAny(name, "*?[") }

// Expand returns the paths that match an absolute pattern, sorted by their bytes: * stands
// for any characters of a name, ? for one, [a-z] for one of those, and a backslash makes the
// next character ordinary. Names that begin with a dot match only a pattern that does. It is
// the pattern alone if a file has this very name, or if nothing matches, or what would match
// cannot be read: then a call for the file says why. It makes one call for each directory
// that it reads.
func Expand(ctx context.Context, files Files, pattern string) []string {
	if _, err := files.Lstat(ctx, pattern); err == nil || !IsPattern(pattern) {
		return []string{pattern}
	}
	matches := []string{"/"}
	parts := strings.Split(strings.Trim(pattern, "/"), "/")
	for i, part := range parts {
		var next []string
		for _, directory := range matches {
			if IsPattern(part) {
				next = append(next, matching(ctx, files, directory, part)...)
				continue
			}
			name := path.Join(directory, part)
			if _, err := files.Lstat(ctx, name); err == nil || i < len(parts)-1 {
				next = append(next, name)
			}
		}
		matches = next
	}
	if len(matches) == 0 {
		return []string{pattern}
	}
	slices.Sort(matches)
	return matches
}

// matching returns the paths of a directory whose names match.
func matching(ctx context.Context, files Files, directory, pattern string) (matches []string) {
	entries, err := files.ReadDir(ctx, directory)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		isHidden := strings.HasPrefix(e.Name, ".") && !strings.HasPrefix(pattern, ".")
		if isMatch, err := path.Match(pattern, e.Name); isMatch && err == nil && !isHidden {
			matches = append(matches, path.Join(directory, e.Name))
		}
	}
	return matches
}
