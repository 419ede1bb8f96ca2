package config

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// A probably misspelled variable is an error, like a misspelled setting in a file: otherwise
// the setting would be silently missing.
func TestLoad_MisspelledVariable_Fails(t *testing.T) {
	hub := func(environ []string) error { _, err := LoadHub("", environ); return err }
	serve := func(environ []string) error { _, err := Load("", environ); return err }
	for name, tt := range map[string]struct {
		load  func([]string) error
		meant string
	}{
		"EXECWIRE_REQUIRED_SANDBOX": {serve, "EXECWIRE_REQUIRE_SANDBOX"},
		"EXECWIRE_LSITEN":           {serve, "EXECWIRE_LISTEN"},
		"EXECWIRE_PRINCIPAL_FILE":   {serve, "EXECWIRE_PRINCIPALS_FILE"},
		"EXECWIRE_HUB_STREAMGRACE":  {hub, "EXECWIRE_HUB_STREAM_GRACE"},
	} {
		err := tt.load([]string{"PATH=/bin", name + "="})
		var wrong *Error
		if !errors.As(err, &wrong) || wrong.Source != name || !strings.Contains(err.Error(), "did you mean "+tt.meant+"?") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Other programs may have variables with this prefix, and some variables of execwire are no
// settings.
func TestLoad_OtherVariables_AreIgnored(t *testing.T) {
	environ := []string{
		"EXECWIRE_MINE=secret", "EXECWIRE_SHUTDOWN_GRACE=1s", "EXECWIRE_LISTEN=off", "EXECWIRE_SERVER=x", "EXECWIRE_HUB=x",
		"EXECWIRE_GROUP=x", "EXECWIRE_HUB_MODE=x", "EXECWIRE_SOAK=1", "EXECWIRE_HUB_LISTEN_AT=x", "EXECWIRE_TLS_KEY=x", "EXECWIRE_GUARDIAN_PIPE=3", "EXECWIRE_TEST_X=1", "HOME=/", "EXECWIREMENT=1",
	}
	if _, err := Load("", environ); err != nil {
		t.Error(err)
	}
	if _, err := LoadHub("", environ); err != nil {
		t.Error(err)
	}
	named := func(list []unknownVariable) (text []string) {
		for _, v := range list {
			text = append(text, v.name+" "+v.nearest)
		}
		return text
	}
	if got, want := named(unknownVariables(Settings(), environ)), []string{"EXECWIRE_MINE ", "EXECWIRE_SHUTDOWN_GRACE EXECWIRE_SHUTDOWN_GRACE_PERIOD", "EXECWIRE_GROUP EXECWIRE_CGROUP"}; !slices.Equal(got, want) {
		t.Errorf("the daemon does not know %q, want %q", got, want)
	}
	if got, want := named(unknownVariables(HubSettings(), environ)), []string{"EXECWIRE_HUB_MODE EXECWIRE_HUB_NODE", "EXECWIRE_HUB_LISTEN_AT EXECWIRE_HUB_LISTEN"}; !slices.Equal(got, want) {
		t.Errorf("a hub does not know %q, want %q", got, want)
	}
}

// No variable of a setting is treated as a misspelled variable of another setting.
func TestSettings_AreNotSimilarToEachOther(t *testing.T) {
	environ := slices.Clone(otherVariables)
	for _, s := range append(Settings(), HubSettings()...) {
		environ = append(environ, s.Environment()+"="+s.Default)
	}
	if unknown := append(unknownVariables(Settings(), environ), unknownVariables(HubSettings(), environ)...); len(unknown) > 0 {
		t.Errorf("not known: %v", unknown)
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"abc", "abc", 0}, {"abc", "axc", 1}, {"abc", "ac", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 2}} {
		if got, back := distance(tt.a, tt.b), distance(tt.b, tt.a); got != tt.want || back != tt.want {
			t.Errorf("from %q to %q: %d, back %d, want %d", tt.a, tt.b, got, back, tt.want)
		}
	}
}
