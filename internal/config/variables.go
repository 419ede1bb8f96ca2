package config

import (
	"log/slog"
	"slices"
	"strings"
)

// UnknownVariable is an environment variable with the prefix of settings that names
// none.
type UnknownVariable struct {
	// Name is the name of the variable.
	Name string
	// Nearest is the variable of a setting that may have been meant; empty if none is
	// like it.
	Nearest string

	slips   int // by how many letters it differs from Nearest
	letters int // of it, behind the prefix
}

// UnknownVariables lists the variables of environ, which is in the form of os.Environ,
// that look like those of the daemon and are none, nor of another part of execwire.
func UnknownVariables(environ []string) []UnknownVariable {
	environ = slices.DeleteFunc(slices.Clone(environ), func(entry string) bool { return strings.HasPrefix(entry, HubEnvironmentPrefix) })
	return unknownVariables(Settings(), EnvironmentPrefix, environ)
}

// UnknownHubVariables is [UnknownVariables] for a hub.
func UnknownHubVariables(environ []string) []UnknownVariable {
	return unknownVariables(HubSettings(), HubEnvironmentPrefix, environ)
}

// WarnOfVariables says which variables look like settings and are none. Their values
// stay unsaid. A logger may be used by others meanwhile.
func WarnOfVariables(logger *slog.Logger, unknown []UnknownVariable) {
	for _, v := range unknown {
		attributes := []any{"variable", v.Name}
		if v.Nearest != "" {
			attributes = append(attributes, "nearest", v.Nearest)
		}
		logger.Warn("ignored an environment variable that names no setting", attributes...)
	}
}

// otherVariables are no settings, and belong to what else there is of execwire: the
// command as a client, the guardian, and the building and testing of all of it.
var otherVariables = []string{
	"EXECWIRE_SERVER", "EXECWIRE_TOKEN_FILE", "EXECWIRE_TLS_CA", "EXECWIRE_TLS_CERT", "EXECWIRE_TLS_KEY",
	"EXECWIRE_HUB", "EXECWIRE_EXECUTOR", "EXECWIRE_GUARDIAN_PIPE",
	"EXECWIRE_BIN", "EXECWIRE_HUB_BIN", "EXECWIRE_TOOLS_DIR", "EXECWIRE_UPDATE_DOCS",
	"EXECWIRE_REFERENCE", "EXECWIRE_SOAK", "EXECWIRE_RELAY_RUNS", "EXECWIRE_RELAY_SCENARIO", "EXECWIRE_BENCH_TABLE", "EXECWIRE_HOSTILE_TABLE",
}

// testVariables begins the names of those of tests.
const testVariables = "EXECWIRE_TEST_"

func unknownVariables(list []Setting, prefix string, environ []string) (unknown []UnknownVariable) {
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		isSetting := slices.ContainsFunc(list, func(s Setting) bool { return s.Environment() == name })
		if !strings.HasPrefix(name, prefix) || isSetting || slices.Contains(otherVariables, name) || strings.HasPrefix(name, testVariables) {
			continue
		}
		variable := nearest(list, name, (len(name)-len(prefix))/3)
		variable.letters = len(name) - len(prefix)
		unknown = append(unknown, variable)
	}
	return unknown
}

// nearest finds the setting that is most like a variable: one that differs by so many
// letters at most, or is the beginning of the other.
func nearest(list []Setting, name string, most int) UnknownVariable {
	variable := UnknownVariable{Name: name}
	for _, s := range list {
		other := s.Environment()
		slips := distance(name, other)
		isLike := slips <= most || strings.HasPrefix(name, other+"_") || strings.HasPrefix(other, name+"_")
		if isLike && (variable.Nearest == "" || slips < variable.slips) {
			variable.Nearest, variable.slips = other, slips
		}
	}
	return variable
}

// mostSlips is by how many letters the name of a variable may differ from that of a
// setting and still count as that, misspelled.
const mostSlips = 2

// fewestLetters is how many letters a name has at least for that: a short word is easily
// like another, and somebody's own, as EXECWIRE_GROUP beside EXECWIRE_USER.
const fewestLetters = 6

// refuseMisspelled refuses a variable that can only be meant to be another one.
func refuseMisspelled(unknown []UnknownVariable, fix string) error {
	for _, v := range unknown {
		if v.Nearest != "" && v.slips <= mostSlips && v.letters >= fewestLetters {
			return &Error{Source: v.Name, Problem: "names no setting", Fix: "did you mean " + v.Nearest + "? " + fix}
		}
	}
	return nil
}

// distance is how many letters have to be put in, taken out or replaced to make one
// name of another.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
