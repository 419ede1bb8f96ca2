package client

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/execwire/execwire/client/execserver"
)

func TestSplitCommand(t *testing.T) {
	for text, want := range map[string][]string{
		"execwire serve":       {"execwire", "serve"},
		"  a\t b  ":            {"a", "b"},
		`sh -c 'echo "$HOME"'`: {"sh", "-c", `echo "$HOME"`},
		`"a b"c\ d '' \\ "\""`: {"a bc d", "", `\`, `"`},
		"a;b | c $(d) *":       {"a;b", "|", "c", "$(d)", "*"},
		`'not closed`:          nil,
		`ends with \`:          nil,
		`''`:                   nil,
	} {
		got, problem := splitCommand(text)
		if !slices.Equal(got, want) || (problem == "") != (want != nil) {
			t.Errorf("%q: got %q, %q", text, got, problem)
		}
	}
}

// A command gets the environment of this program, but no token.
func TestDial_Stdio_DoesNotPassTokenOn(t *testing.T) {
	t.Setenv("EXECWIRE_TOKEN", "seen")
	t.Setenv("EXECWIRE_TOKEN_FILE", "/token")
	_, err := Dial(t.Context(), "stdio:sh -c 'echo \"<$EXECWIRE_TOKEN$EXECWIRE_TOKEN_FILE>\" >&2; exit 3'")
	if err == nil || !strings.Contains(err.Error(), "</token>") {
		t.Errorf("got %v", err)
	}
}

func TestDial_Stdio_LaunchesCommand(t *testing.T) {
	var ended *execserver.CommandEndedError
	var dial *DialError
	_, err := Dial(t.Context(), "stdio:sh -c 'echo no such thing >&2; exit 3' secret")
	if !errors.As(err, &dial) || !errors.As(err, &ended) || ended.Exit != "exit status 3" || !strings.Contains(err.Error(), "no such thing") || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
	command := WithLaunchCommand(LaunchCommand{Argv: []string{"sh", "-c", "exit 4"}})
	if _, err = Dial(t.Context(), "stdio:", command); !errors.As(err, &ended) || ended.Exit != "exit status 4" {
		t.Errorf("an exact command: %v", err)
	}
	var wrong *URLError
	if _, err = Dial(t.Context(), "stdio:true", command); !errors.As(err, &wrong) {
		t.Errorf("two commands: %v", err)
	}
}
