// Package gitignore matches paths with patterns in the notation of .gitignore.
package gitignore

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of patterns.
const (
	// MaxPatterns is how many patterns a call may have.
	MaxPatterns = 100
	// MaxPatternBytes is the longest pattern, in bytes.
	MaxPatternBytes = 1000
)

// Pattern is a pattern of paths below a directory, in the notation of .gitignore.
// "*" stands for any characters but a slash, "?" for one, "[a-z]" for one of those
// and "[!a-z]" for one that is none of them; a backslash has the character that
// follows stand for itself. "**" as a part of its own stands for any directories,
// also none; at the end for all that is below. A pattern with a slash before its
// end is of paths from the top on, any other of names at any depth; a slash at
// the end leaves directories only. There is no negation, and no class with a name
// like [:alpha:]. The zero value matches nothing.
type Pattern struct {
	parts           []string // of the pattern, between slashes
	directoriesOnly bool
}

// Patterns are patterns of which one has to match. Nil matches nothing.
type Patterns []Pattern

// Parse reads a pattern. Its errors say what is wrong with it.
func Parse(pattern string) (Pattern, error) {
	refuse := func(why string) (Pattern, error) {
		return Pattern{}, fmt.Errorf("failed to use the pattern %q: %s", pattern, why)
	}
	switch {
	case len(pattern) > MaxPatternBytes:
		return refuse("it is longer than " + strconv.Itoa(MaxPatternBytes) + " bytes")
	case strings.IndexByte(pattern, 0) >= 0:
		return refuse("it has a NUL in it")
	case strings.HasPrefix(pattern, "!"):
		return refuse("patterns do not take others back: write \\! for an exclamation mark")
	}
	rest, directoriesOnly := strings.CutSuffix(pattern, "/")
	anchored := strings.Contains(rest, "/")
	parts := strings.Split(strings.TrimPrefix(rest, "/"), "/")
	if slices.ContainsFunc(parts, func(part string) bool { return part == "" || part == "." || part == ".." }) {
		return refuse("it has an empty part, \".\" or \"..\", and names have none")
	}
	for _, part := range parts {
		if why := checkPart(part); why != "" {
			return refuse(why)
		}
	}
	if !anchored {
		parts = []string{anyDirectories, parts[0]}
		if parts[1] == anyDirectories {
			parts = []string{anyDirectories}
		}
	}
	return Pattern{parts: parts, directoriesOnly: directoriesOnly}, nil
}

// ParseAll parses patterns. It fails with the error of the first malformed one, or if there are
// too many.
func ParseAll(patterns []string) (Patterns, error) {
	if len(patterns) > MaxPatterns {
		return nil, fmt.Errorf("failed to use %d patterns: there may be %d", len(patterns), MaxPatterns)
	}
	var all Patterns
	for _, pattern := range patterns {
		parsed, err := Parse(pattern)
		if err != nil {
			return nil, err
		}
		all = append(all, parsed)
	}
	return all, nil
}

// Match reports whether a pattern matches a path, which is relative to the
// directory, clean, and need not be UTF-8. What is below a directory that is
// matched is for the caller not to look at.
func (p Patterns) Match(relative string, isDirectory bool) bool {
	return slices.ContainsFunc(p, func(one Pattern) bool { return one.Match(relative, isDirectory) })
}

// Match is [Patterns.Match] for one pattern.
func (p Pattern) Match(relative string, isDirectory bool) bool {
	if len(p.parts) == 0 || p.directoriesOnly && !isDirectory {
		return false
	}
	if len(p.parts) == 2 && p.parts[0] == anyDirectories {
		return matchPart(p.parts[1], path.Base(relative))
	}
	return matchParts(p.parts, relative)
}

// anyDirectories is the part of a pattern that stands for any directories.
const anyDirectories = "**"

// matchParts goes back to the last "**" when something after it does not match,
// and has that stand for one more: none before needs to be tried again.
func matchParts(parts []string, relative string) bool {
	at, rest := 0, relative
	again, restAgain := -1, ""
	for rest != "" {
		name, after, _ := strings.Cut(rest, "/")
		switch {
		case at < len(parts) && parts[at] == anyDirectories:
			if at == len(parts)-1 {
				return true // with something below
			}
			at++
			again, restAgain = at, rest
		case at < len(parts) && matchPart(parts[at], name):
			at, rest = at+1, after
		case again >= 0:
			_, restAgain, _ = strings.Cut(restAgain, "/")
			at, rest = again, restAgain
		default:
			return false
		}
	}
	return at == len(parts)
}

// matchPart matches a name, going back to the last "*" as matchParts does.
func matchPart(part, name string) bool {
	again, nameAgain := "", ""
	starred := false
	for {
		if strings.HasPrefix(part, "*") {
			part = strings.TrimLeft(part, "*")
			again, nameAgain, starred = part, name, true
			continue
		}
		if name == "" {
			return part == ""
		}
		if part != "" {
			if restPart, restName, ok := matchOne(part, name); ok {
				part, name = restPart, restName
				continue
			}
		}
		if !starred {
			return false
		}
		_, size := utf8.DecodeRuneInString(nameAgain)
		nameAgain = nameAgain[size:]
		part, name = again, nameAgain
	}
}

// matchOne matches the first character of a name, which can be a byte that is of
// none, and returns what follows. Neither is empty, and part begins with no "*".
func matchOne(part, name string) (restPart, restName string, ok bool) {
	r, size := utf8.DecodeRuneInString(name)
	isByte := r == utf8.RuneError && size == 1
	restName = name[size:]
	switch part[0] {
	case '?':
		return part[1:], restName, true
	case '[':
		inside, rest := cutClass(part)
		return rest, restName, matchClass(inside, r, isByte)
	case '\\':
		part = part[1:]
	}
	restPart, ok = strings.CutPrefix(part, name[:size])
	return restPart, restName, ok
}

// cutClass splits a pattern that begins with a bracket behind the one that closes
// it: a closing bracket that comes first is one of the characters. inside is
// empty if there is none.
func cutClass(part string) (inside, rest string) {
	at := 1
	if at < len(part) && (part[at] == '!' || part[at] == '^') {
		at++
	}
	for first := at; at < len(part); at++ {
		switch {
		case part[at] == '\\':
			at++
		case part[at] == ']' && at > first:
			return part[1:at], part[at+1:]
		}
	}
	return "", ""
}

// matchClass matches a character with what is between brackets. A byte that is of
// no character is in no class, and so in each that is of all others.
func matchClass(inside string, r rune, isByte bool) bool {
	inverted := inside[0] == '!' || inside[0] == '^'
	if inverted {
		inside = inside[1:]
	}
	found := false
	for inside != "" {
		var low, high rune
		low, inside = cutRune(inside)
		high = low
		if len(inside) > 1 && inside[0] == '-' {
			high, inside = cutRune(inside[1:])
		}
		found = found || !isByte && low <= r && r <= high
	}
	return found != inverted
}

// cutRune takes a character of a class, of which a backslash has been taken away.
func cutRune(inside string) (r rune, rest string) {
	if inside[0] == '\\' && len(inside) > 1 {
		inside = inside[1:]
	}
	r, size := utf8.DecodeRuneInString(inside)
	return r, inside[size:]
}

// checkPart returns what is wrong with a part of a pattern, or "".
func checkPart(part string) string {
	for part != "" {
		switch part[0] {
		case '\\':
			if len(part) == 1 {
				return "the backslash at an end has no character: write \\\\ for a backslash"
			}
			part = part[2:]
		case '[':
			inside, rest := cutClass(part)
			switch {
			case inside == "":
				return "a bracket is not closed: write \\[ for a bracket"
			case strings.Contains(inside, "[:"):
				return "there are no named classes like [:alpha:]: write [a-z], or [:[] for a colon or a bracket"
			}
			part = rest
		default:
			part = part[1:]
		}
	}
	return ""
}
