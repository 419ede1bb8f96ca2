package process

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Inherit says how much of the server's own environment an EnvironmentPolicy begins with.
type Inherit uint8

// What is inherited. The zero value is nothing.
const (
	InheritNone Inherit = iota
	InheritCore         // what programs can hardly do without, see coreNames
	InheritAll
)

// coreNames are compared ignoring case.
var coreNames = []string{
	"PATH", "SHELL", "TMPDIR", "TEMP", "TMP", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "USER",
}

// defaultExcludes keep what looks like a credential of the server from its children.
var defaultExcludes = []string{"*KEY*", "*SECRET*", "*TOKEN*"}

// Bounds of each list of patterns: every name is held against every pattern.
const (
	MaxPatterns     = 256
	MaxPatternBytes = 256
)

// EnvironmentPolicy builds a child's environment from the server's. Its members apply in the order in which they are
// listed. Patterns match whole names, ignoring case; "*" is any run of characters and "?" any one.
type EnvironmentPolicy struct {
	// Inherit says what of the server's environment to begin with.
	Inherit Inherit
	// IgnoreDefaultExcludes keeps names that match *KEY*, *SECRET* or *TOKEN*, which are dropped otherwise.
	IgnoreDefaultExcludes bool
	// Exclude drops the names that match any of these patterns.
	Exclude []string
	// Set adds or replaces.
	Set map[string]string
	// IncludeOnly, unless empty, keeps only the names that match any of these patterns, also among what Set added.
	IncludeOnly []string
}

// Validate refuses, with InvalidArgument, more or longer patterns than MaxPatterns and MaxPatternBytes. Field begins with
// environment_policy. Build does not check.
func (p EnvironmentPolicy) Validate() error {
	if err := validatePatterns("environment_policy.exclude", p.Exclude); err != nil {
		return err
	}
	return validatePatterns("environment_policy.include_only", p.IncludeOnly)
}

func validatePatterns(field string, patterns []string) error {
	if len(patterns) > MaxPatterns {
		return invalid(field, fmt.Sprintf("has %d patterns; give at most %d", len(patterns), MaxPatterns))
	}
	for i, pattern := range patterns {
		if len(pattern) > MaxPatternBytes {
			return invalid(fmt.Sprintf("%s[%d]", field, i), fmt.Sprintf("has %d bytes; give at most %d", len(pattern), MaxPatternBytes))
		}
	}
	return nil
}

// Build returns the environment that the policy makes of the server's, as NAME=value in the order of names. The
// overrides come last and are subject to no pattern. Entries of server without a name are left out; of a name given
// twice the first counts, as it does for getenv.
func (p EnvironmentPolicy) Build(server []string, overrides map[string]string) []string {
	env := p.inherit(server)
	if !p.IgnoreDefaultExcludes {
		drop(env, defaultExcludes)
	}
	drop(env, p.Exclude)
	maps.Copy(env, p.Set)
	if len(p.IncludeOnly) > 0 {
		kept := foldAll(p.IncludeOnly)
		maps.DeleteFunc(env, func(name, _ string) bool { return !matchesAny(kept, name) })
	}
	maps.Copy(env, overrides)
	built := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		built = append(built, name+"="+env[name])
	}
	return built
}

func (p EnvironmentPolicy) inherit(server []string) map[string]string {
	env := make(map[string]string)
	if p.Inherit == InheritNone {
		return env
	}
	for _, entry := range server {
		name, value, ok := strings.Cut(entry, "=")
		if _, taken := env[name]; !ok || name == "" || taken {
			continue
		}
		if p.Inherit == InheritAll || slices.ContainsFunc(coreNames, func(core string) bool {
			return strings.EqualFold(core, name)
		}) {
			env[name] = value
		}
	}
	return env
}

func drop(env map[string]string, patterns []string) {
	dropped := foldAll(patterns)
	maps.DeleteFunc(env, func(name, _ string) bool { return matchesAny(dropped, name) })
}

func matchesAny(patterns [][]rune, name string) bool {
	n := fold(name)
	return slices.ContainsFunc(patterns, func(p []rune) bool { return matches(p, n) })
}

// matches takes a folded pattern and name, and time in proportion to the product of the lengths at most: patterns come
// from clients.
func matches(p, n []rune) bool {
	star, retry := -1, 0 // after the last "*" seen, and where in n its match ends if tried again
	i, j := 0, 0
	for j < len(n) {
		switch {
		case i < len(p) && p[i] == '*':
			i++
			star, retry = i, j
		case i < len(p) && (p[i] == '?' || p[i] == n[j]):
			i++
			j++
		case star >= 0:
			retry++
			i, j = star, retry
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}

func foldAll(patterns []string) [][]rune {
	folded := make([][]rune, len(patterns))
	for i, pattern := range patterns {
		folded[i] = fold(pattern)
	}
	return folded
}

func fold(s string) []rune {
	folded := []rune(s)
	for i, r := range folded {
		folded[i] = unicode.ToLower(r)
	}
	return folded
}
