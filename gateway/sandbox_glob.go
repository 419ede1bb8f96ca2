package gateway

import (
	"slices"
	"strings"
)

// maxAlternatives is the most patterns that one with alternatives in braces comes to.
const maxAlternatives = 64

// maxPatternBytes is more than any path has.
const maxPatternBytes = 4096

// translateGlob writes a pattern of the protocol as those of the core, which are of
// Go's path.Match and have no alternatives in braces, so that nothing that was to be
// denied is not. What cannot be written so is a problem.
func translateGlob(pattern string) (patterns []string, problem string) {
	switch {
	case pattern == "":
		return nil, "is empty: give a pattern of paths"
	case len(pattern) >= maxPatternBytes:
		return nil, "is longer than any path: shorten it"
	case strings.IndexByte(pattern, 0) >= 0:
		return nil, "has a NUL in it"
	case strings.HasPrefix(strings.ToLower(pattern), "file:"):
		return nil, "is a URI: give a pattern of paths"
	}
	alternatives, problem := expandBraces(pattern)
	if problem != "" {
		return nil, problem
	}
	for _, alternative := range alternatives {
		translated, problem := translateClasses(alternative)
		if problem != "" {
			return nil, problem
		}
		translated = strings.TrimPrefix(translated, "./")
		names := strings.Split(translated, "/")
		if slices.Contains(names, "..") || slices.Contains(names, ".") {
			return nil, "has `.` or `..` in it: give the path itself"
		}
		patterns = append(patterns, translated)
	}
	return patterns, ""
}

// expandBraces lists the patterns that one with {a,b} stands for.
func expandBraces(pattern string) (all []string, problem string) {
	begin, end, commas := findBraces(pattern)
	switch {
	case begin < 0 && end < 0:
		return []string{pattern}, ""
	case begin < 0 || end < 0:
		return nil, "has a brace without its counterpart: write `\\` before it if it is meant literally"
	}
	from := begin + 1
	for _, to := range append(commas, end) {
		rest, problem := expandBraces(pattern[:begin] + pattern[from:to] + pattern[end+1:])
		if problem != "" {
			return nil, problem
		}
		if all = append(all, rest...); len(all) > maxAlternatives {
			return nil, "has more than 64 alternatives: give several entries"
		}
		from = to + 1
	}
	return all, ""
}

// findBraces finds the first outermost braces and the commas right within them. One
// without the other is left over where it is.
func findBraces(pattern string) (begin, end int, commas []int) {
	begin, depth, inClass := -1, 0, false
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case inClass:
			inClass = c != ']'
		case c == '\\':
			i++
		case c == '[':
			inClass = true
		case c == '{':
			if depth++; depth == 1 {
				begin = i
			}
		case c == '}' && depth == 0:
			return -1, i, nil
		case c == '}':
			if depth--; depth == 0 {
				return begin, i, commas
			}
		case c == ',' && depth == 1:
			commas = append(commas, i)
		}
	}
	return begin, -1, nil
}

// translateClasses writes classes of characters as path.Match has them: [!a] is
// [^a].
func translateClasses(pattern string) (translated string, problem string) {
	const tooOdd = "has a class of characters that cannot be enforced: write [abc], [a-z] or [!abc], without `\\`, `/`, `[` and a `]` in it"
	var text strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; c {
		case '\\':
			if i+1 == len(pattern) || pattern[i+1] == '/' {
				return "", "has a `\\` before nothing: leave it out"
			}
			text.WriteString(pattern[i : i+2])
			i++
		case '[':
			length := strings.IndexByte(pattern[i:], ']')
			if length < 0 {
				return "", tooOdd
			}
			class := pattern[i+1 : i+length]
			negated := strings.HasPrefix(class, "!") || strings.HasPrefix(class, "^")
			if negated {
				class = class[1:]
			}
			if class == "" || strings.ContainsAny(class, `\/[`) || strings.HasPrefix(class, "-") || strings.HasSuffix(class, "-") {
				return "", tooOdd
			}
			text.WriteByte('[')
			if negated {
				text.WriteByte('^')
			}
			text.WriteString(class + "]")
			i += length
		default:
			text.WriteByte(c)
		}
	}
	return text.String(), ""
}

// escapeGlob is a path as a pattern that only it matches.
func escapeGlob(path string) string {
	return globEscapes.Replace(path)
}

var globEscapes = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)
