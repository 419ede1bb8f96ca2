package gitignore

import (
	"path"
	"strings"
	"testing"
)

func TestPatterns(t *testing.T) {
	tests := []struct{ pattern, matched, other string }{
		{"f", "f a/f a/b/f f/", "F ff a/ff f/x"},
		{"*.go", "x.go a/x.go .go", "x.got go x.go/y"},
		{"*", "x a/b x/", ""},
		{"**", "x a/b x/", ""},
		{"a*b*c", "abc aXbYc abcbc", "abcb ab xabc"},
		{"a**c", "ac abc", "a/c"},
		{"?", "x ä \xff", "xy x\xff"},
		{"f?", "fx f\xff", "f fxy"},
		{"node_modules/", "node_modules/ a/node_modules/", "node_modules a/node_modules"},
		{"/f", "f", "a/f"},
		{"/d/", "d/", "d a/d/"},
		{"a/b", "a/b", "b x/a/b a/b/c a"},
		{"a/*", "a/b a/c/", "a a/b/c"},
		{"**/f", "f a/f a/b/f", "a/b/g f/x"},
		{"**/a/f", "a/f x/a/f x/y/a/f a/a/f", "f a/b/f"},
		{"a/**", "a/b a/b/c a/b/", "a b/a b/a/c"},
		{"a/**/b", "a/b a/x/b a/x/y/b a/b/b", "a b x/a/b a/x/c"},
		{"**/a/**/b/*.c", "a/b/x.c p/a/q/b/r/b/x.c", "a/x.c a/b/c/x.c"},
		{"[a-c]x", "ax bx cx", "dx x aax"},
		{"[!a-c]x", "dx \xffx äx", "ax x"},
		{"[^a-c]x", "dx", "ax"},
		{"[]x]", "] x", "[ y"},
		{"[!]]", "x [", "]"},
		{"[a-]", "a -", "b"},
		{"[ä-ü]", "ö", "o \xc3"},
		{`[\]\-]`, "] -", `\ x`},
		{`\*`, "*", `\* x`},
		{`\!x`, "!x", `\!x x`},
		{`a\b`, "ab", `a\b`},
		{"#x", "#x", "x"},
		{"*\xff", "\xff a\xff", "a ÿ"},
		{" x", " x", "x"},
	}
	for _, tt := range tests {
		globs, err := ParseAll([]string{"never/matches", tt.pattern})
		if err != nil {
			t.Errorf("%q: %v", tt.pattern, err)
			continue
		}
		check := func(list string, want bool) {
			for _, p := range split(list) {
				isDirectory := strings.HasSuffix(p, "/")
				if globs.Match(path.Clean(p), isDirectory) != want {
					t.Errorf("%q: %q is matched: %v, want %v", tt.pattern, p, !want, want)
				}
			}
		}
		check(tt.matched, true)
		check(tt.other, false)
	}
	if Patterns(nil).Match("x", true) || (Patterns{{}}).Match("x", true) {
		t.Error("an empty list of patterns matches")
	}
}

// split splits at spaces, except for a leading space of a path.
func split(list string) []string {
	if strings.HasPrefix(list, " ") {
		return []string{list}
	}
	return strings.Fields(list)
}

func TestPatterns_Malformed_Fails(t *testing.T) {
	for _, pattern := range []string{"", "/", "//", "a//b", "a/", "!x", "[", "[a", "[!", "[]", "x[", `x\`, `[\]`, "a/../b", "./a", "..", "\x00", "[[:alpha:]]", "x[^_[:digit:]]",
		strings.Repeat("x", MaxPatternBytes+1)} {
		_, err := Parse(pattern)
		if want := pattern != "a/"; (err != nil) != want {
			t.Errorf("%q: %v", pattern, err)
		}
	}
	many := strings.Split(strings.Repeat("x", MaxPatterns+1), "")
	if _, err := ParseAll(many); err == nil {
		t.Errorf("%d patterns: %v", len(many), err)
	}
	if globs, err := ParseAll(many[:MaxPatterns]); err != nil || !globs.Match("x", false) {
		t.Errorf("%d patterns: %v", MaxPatterns, err)
	}
	if glob, err := Parse("[:[]"); err != nil || !glob.Match("[", false) || !glob.Match(":", false) {
		t.Errorf("a colon or a bracket: %v", err)
	}
	if _, err := Parse(strings.Repeat("x", MaxPatternBytes)); err != nil {
		t.Errorf("the longest pattern: %v", err)
	}
}

// FuzzPattern: the match time of an accepted pattern is bounded by its length, and a
// pattern that is escaped with backslashes matches only itself.
func FuzzPattern(f *testing.F) {
	f.Add("a/**/[b-d]*?", "a/x/cyz")
	f.Add("**/**/*a*b*c*", strings.Repeat("ab", 50))
	f.Add("\xff[!\xff]", "\xff\xfe")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if glob, err := Parse(pattern); err == nil {
			glob.Match(name, true)
		}
		var quoted strings.Builder
		for _, b := range []byte(name) {
			if strings.IndexByte(`*?[\!`, b) >= 0 {
				quoted.WriteByte('\\')
			}
			quoted.WriteByte(b)
		}
		glob, err := Parse(quoted.String())
		if err != nil {
			return
		}
		if name := strings.Trim(name, "/"); !glob.Match(name, true) || glob.Match(name+"x", true) {
			t.Errorf("%q does not match %q alone", quoted.String(), name)
		}
	})
}
