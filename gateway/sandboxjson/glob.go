package sandboxjson

import (
	"slices"
	"strings"
)

// maxAlternatives is the largest number of patterns that the braces of one expand to.
const maxAlternatives = 64

// maxPatternBytes exceeds the length of any path.
const maxPatternBytes = 4096

// expandGlob translates a pattern of the protocol to patterns of Go's path.Match, which
// has no braces. It returns a problem for a pattern that it cannot translate exactly,
// so that a denial never matches less than the client meant.
func expandGlob(pattern string) (patterns []string, problem string) {
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

// expandBraces expands {a,b}.
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

// findBraces finds the first outermost pair of braces and the commas directly inside.
// An unmatched brace is returned alone.
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

// translateClasses rewrites [!a] to [^a], the form of path.Match.
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

// escapeGlob returns a pattern that matches only path.
func escapeGlob(path string) string {
	return globEscapes.Replace(path)
}

var globEscapes = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)
