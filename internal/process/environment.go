package process

import (
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
		maps.DeleteFunc(env, func(name, _ string) bool { return !matchesAny(p.IncludeOnly, name) })
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
	maps.DeleteFunc(env, func(name, _ string) bool { return matchesAny(patterns, name) })
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, name) })
}

// matches takes time in proportion to the product of the lengths at most: patterns come from clients.
func matches(pattern, name string) bool {
	p, n := fold(pattern), fold(name)
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

func fold(s string) []rune {
	folded := []rune(s)
	for i, r := range folded {
		folded[i] = unicode.ToLower(r)
	}
	return folded
}
