package config

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/execwire/execwire/internal/similar"
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

// MisspelledVariables returns a text for each variable of environ, in the form of
// os.Environ, that is probably a misspelled one of known. Settings of the daemon and of a
// hub are no misspellings. The texts have no values.
func MisspelledVariables(known []string, environ []string) (texts []string) {
	names := slices.Concat(known, otherVariables(), environmentNames(Settings()), environmentNames(HubSettings()))
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		letters := len(name) - len(EnvironmentPrefix)
		if !strings.HasPrefix(name, EnvironmentPrefix) || letters < fewestClientLetters || slices.Contains(names, name) || strings.HasPrefix(name, testVariables) {
			continue
		}
		if meant, slips := similar.Nearest(name, len(EnvironmentPrefix), known); meant != "" && slips <= mostSlips {
			texts = append(texts, name+" has no effect: did you mean "+meant+"?")
		}
	}
	return texts
}

// fewestClientLetters is the shortest name of which MisspelledVariables warns.
const fewestClientLetters = 4

// otherVariables are variables of other parts of execwire: the client commands, the
// guardian, and its build and tests.
func otherVariables() []string {
	return append(ClientVariables(),
		"EXECWIRE_GUARDIAN_PIPE", "EXECWIRE_UPSTREAM_TLS_CA", "EXECWIRE_UPSTREAM_TLS_CERT", "EXECWIRE_UPSTREAM_TLS_KEY",
		"EXECWIRE_BIN", "EXECWIRE_HUB_BIN", "EXECWIRE_TOOLS_DIR", "EXECWIRE_UPDATE_DOCS",
		"EXECWIRE_REFERENCE", "EXECWIRE_SOAK", "EXECWIRE_RELAY_RUNS", "EXECWIRE_RELAY_SCENARIO", "EXECWIRE_BENCH_TABLE", "EXECWIRE_BENCH_RUNS", "EXECWIRE_HOSTILE_TABLE",
	)
}

// ClientVariables are the variables of commands that connect to a server.
func ClientVariables() []string {
	return append([]string{"EXECWIRE_TOKEN", ContextVariable}, environmentNames(ClientSettings())...)
}

func environmentNames(settings []Setting) []string {
	names := make([]string, len(settings))
	for i, s := range settings {
		names[i] = s.Environment()
	}
	return names
}

// testVariables is the prefix of variables of tests.
const testVariables = "EXECWIRE_TEST_"

func unknownVariables(settings []Setting, environ []string) (unknown []unknownVariable) {
	prefix := settings[0].prefix
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		isOther := slices.Contains(otherVariables(), name) || strings.HasPrefix(name, testVariables) ||
			prefix != HubEnvironmentPrefix && strings.HasPrefix(name, HubEnvironmentPrefix)
		isSetting := slices.ContainsFunc(settings, func(s Setting) bool { return s.Environment() == name })
		if !isOther && !isSetting {
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
// a number of letters.
func nearest(settings []Setting, name string, letters int) unknownVariable {
	variable := unknownVariable{name: name}
	variable.nearest, variable.slips = similar.Nearest(name, len(name)-letters, environmentNames(settings))
	variable.misspelled = variable.nearest != "" && variable.slips <= mostSlips && letters >= fewestLetters
	return variable
}
