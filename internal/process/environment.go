package process

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Inherit selects the variables of the server that an EnvironmentPolicy starts with.
type Inherit uint8

// The values of Inherit. The zero value inherits nothing.
const (
	InheritNone Inherit = iota
	InheritCore         // variables that most programs need, see coreNames
	InheritAll
)

// coreNames are compared without regard to case.
var coreNames = []string{
	"PATH", "SHELL", "TMPDIR", "TEMP", "TMP", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "USER",
}

// defaultExcludes match the names of probable credentials of the server.
var defaultExcludes = []string{"*KEY*", "*SECRET*", "*TOKEN*"}

// Limits of each pattern list. Every name is matched against every pattern.
const (
	MaxPatterns     = 256
	MaxPatternBytes = 256
)

// EnvironmentPolicy builds the environment of a child from that of the server. Its fields apply in
// the order in which they are declared. Patterns match whole names without regard to case; "*"
// matches any characters and "?" matches one.
type EnvironmentPolicy struct {
	// Inherit selects the variables to start with.
	Inherit Inherit
	// IgnoreDefaultExcludes keeps names that match *KEY*, *SECRET* or *TOKEN*, which are removed
	// otherwise.
	IgnoreDefaultExcludes bool
	// Exclude removes the names that match any of these patterns.
	Exclude []string
	// Set adds or replaces variables.
	Set map[string]string
	// IncludeOnly, unless empty, keeps only the names that match any of these patterns. It applies
	// to the variables of Set too.
	IncludeOnly []string
}

// Validate returns an InvalidArgument error if there are more patterns than MaxPatterns, or one is
// longer than MaxPatternBytes. Its Field begins with environment_policy. Build does not validate.
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

// Build returns the environment as NAME=value, sorted by name. No pattern applies to the overrides.
// Entries of server without a name are dropped; the first entry of a name counts, as for getenv.
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

// matches matches a folded name against a folded pattern. Its time is bounded by the product of
// their lengths, because patterns come from clients.
func matches(p, n []rune) bool {
	star, retry := -1, 0 // after the last "*", and where in n to retry its match
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

func fold(s string) []rune { return []rune(strings.ToLower(s)) }
