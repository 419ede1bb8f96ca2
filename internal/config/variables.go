package config

import (
	"log/slog"
	"slices"
	"strings"
)

// unknownVariable is an environment variable that has the prefix of settings but names
// none.
type unknownVariable struct {
	name       string
	nearest    string // the variable of the most similar setting; empty if none is similar
	slips      int    // edit distance to nearest
	misspelled bool   // whether it can only be a misspelled nearest
}

// WarnOfVariables logs the variables of environ, in the form of os.Environ, that have the
// prefix of a program's settings but name neither one of them nor something else of
// execwire. It does not log their values.
func WarnOfVariables(logger *slog.Logger, settings []Setting, environ []string) {
	for _, v := range unknownVariables(settings, environ) {
		attributes := []any{"variable", v.name}
		if v.nearest != "" {
			attributes = append(attributes, "nearest", v.nearest)
		}
		logger.Warn("ignored an environment variable that names no setting", attributes...)
	}
}

// otherVariables are variables of other parts of execwire: the client commands, the
// guardian, and its build and tests.
var otherVariables = []string{
	"EXECWIRE_SERVER", "EXECWIRE_TOKEN_FILE", "EXECWIRE_TLS_CA", "EXECWIRE_TLS_CERT", "EXECWIRE_TLS_KEY",
	"EXECWIRE_HUB", "EXECWIRE_EXECUTOR", "EXECWIRE_GUARDIAN_PIPE",
	"EXECWIRE_BIN", "EXECWIRE_HUB_BIN", "EXECWIRE_TOOLS_DIR", "EXECWIRE_UPDATE_DOCS",
	"EXECWIRE_REFERENCE", "EXECWIRE_SOAK", "EXECWIRE_RELAY_RUNS", "EXECWIRE_RELAY_SCENARIO", "EXECWIRE_BENCH_TABLE", "EXECWIRE_HOSTILE_TABLE",
}

// testVariables is the prefix of variables of tests.
const testVariables = "EXECWIRE_TEST_"

func unknownVariables(settings []Setting, environ []string) (unknown []unknownVariable) {
	prefix := settings[0].prefix
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		isOther := slices.Contains(otherVariables, name) || strings.HasPrefix(name, testVariables) ||
			prefix != HubEnvironmentPrefix && strings.HasPrefix(name, HubEnvironmentPrefix)
		isSetting := slices.ContainsFunc(settings, func(s Setting) bool { return s.Environment() == name })
		if strings.HasPrefix(name, prefix) && !isOther && !isSetting {
			unknown = append(unknown, nearest(settings, name, len(name)-len(prefix)))
		}
	}
	return unknown
}

const (
	// mostSlips is the largest edit distance at which a variable counts as a misspelled
	// setting.
	mostSlips = 2
	// fewestLetters is the shortest name that can count as misspelled: short words are
	// often similar by chance, as EXECWIRE_GROUP and EXECWIRE_USER.
	fewestLetters = 6
)

// nearest finds the setting most similar to a variable, whose name without the prefix has
// a number of letters: one with at most a third of them changed, or of which one name is
// the prefix of the other.
func nearest(settings []Setting, name string, letters int) unknownVariable {
	variable := unknownVariable{name: name}
	for _, s := range settings {
		other := s.Environment()
		slips := distance(name, other)
		isLike := slips <= letters/3 || strings.HasPrefix(name, other+"_") || strings.HasPrefix(other, name+"_")
		if isLike && (variable.nearest == "" || slips < variable.slips) {
			variable.nearest, variable.slips = other, slips
		}
	}
	variable.misspelled = variable.nearest != "" && variable.slips <= mostSlips && letters >= fewestLetters
	return variable
}

// distance is the edit distance of two names.
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
