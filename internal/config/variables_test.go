package config

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/similar"
)

// A probably misspelled variable is an error, like a misspelled setting in a file: otherwise
// the setting would be silently missing.
func TestLoad_MisspelledVariable_Fails(t *testing.T) {
	hub := func(environ []string) error { _, _, err := LoadHub("", environ); return err }
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
	if _, _, err := LoadHub("", environ); err != nil {
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
	environ := slices.Clone(otherVariables())
	for _, s := range append(Settings(), HubSettings()...) {
		environ = append(environ, s.Environment()+"="+s.Default)
	}
	if unknown := append(unknownVariables(Settings(), environ), unknownVariables(HubSettings(), environ)...); len(unknown) > 0 {
		t.Errorf("not known: %v", unknown)
	}
}

func TestNearest_FindsWhatWasMeant(t *testing.T) {
	names := []string{"default_grace", "max_grace", "listen", "listen_timeout", "ws_auth"}
	for _, tt := range []struct {
		name, want string
		slips      int
	}{
		{"listen", "listen", 0}, {"lisen", "listen", 1}, {"LISTEN", "listen", 0}, {"defaultGrace", "default_grace", 1}, {"max-grace", "max_grace", 0},
		{"default", "default_grace", 6}, {"ws_auth_file", "ws_auth", 5}, {"ilsten", "listen", 1}, {"wsa_uth", "ws_auth", 1}, {"grace", "", 0}, {"x", "", 0}, {"", "", 0},
	} {
		if got, slips := similar.Nearest(tt.name, 0, names); got != tt.want || slips != tt.slips {
			t.Errorf("nearest to %q is %q, distance %d; want %q, %d", tt.name, got, slips, tt.want, tt.slips)
		}
	}
}
