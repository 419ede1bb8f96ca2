// Package glob expands patterns of paths on the files of a server, as a shell does on those
// of this machine.
package glob

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
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
// for any characters of a name, ? for one, [a-z] for one of those and [!a-z] for another,
// and a backslash makes the next character ordinary. Names that begin with a dot match only
// a pattern that does. A pattern that ends with a slash matches only directories, and links
// to them. The pattern begins with a directory that is taken literally. It is the result if
// a file has this very name, or if nothing matches, or what would match cannot be read: then
// a call for the file says why. It makes one call for each directory that it reads. No
// result ends with a slash.
func Expand(ctx context.Context, files Files, directory, pattern string) []string {
	pattern, ofDirectory := strings.CutSuffix(pattern, "/")
	if _, err := files.Lstat(ctx, pattern); err == nil {
		return []string{pattern}
	}
	matches := []string{directory}
	parts := strings.Split(strings.Trim(strings.TrimPrefix(pattern, directory), "/"), "/")
	for i, part := range parts {
		var next []string
		for _, directory := range matches {
			if IsPattern(part) {
				next = append(next, matching(ctx, files, directory, part, ofDirectory || i < len(parts)-1)...)
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

// matching returns the paths of a directory whose names match, also only those of directories.
func matching(ctx context.Context, files Files, directory, pattern string, ofDirectory bool) (matches []string) {
	entries, err := files.ReadDir(ctx, directory)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if ofDirectory && e.Type != execwirev1.FileType_FILE_TYPE_DIRECTORY && e.TargetType != execwirev1.FileType_FILE_TYPE_DIRECTORY {
			continue
		}
		isHidden := strings.HasPrefix(e.Name, ".") && !strings.HasPrefix(pattern, ".")
		if isMatch, err := path.Match(negated(pattern), e.Name); isMatch && err == nil && !isHidden {
			matches = append(matches, path.Join(directory, e.Name))
		}
	}
	return matches
}

// negated returns a pattern with [^ for the [! of shells, which [path.Match] does not know.
func negated(pattern string) string {
	text, inBrackets := []byte(pattern), false
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\':
			i++
		case inBrackets:
			inBrackets = text[i] != ']'
		case text[i] == '[':
			inBrackets = true
			if i+1 < len(text) && text[i+1] == '!' {
				text[i+1] = '^'
			}
		}
	}
	return string(text)
}
