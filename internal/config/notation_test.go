package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The example has every setting. As it is, it changes nothing; without the comment signs it
// sets every setting to its default.
func TestExample_UncommentedHasTheDefaults(t *testing.T) {
	for name, test := range map[string]struct {
		settings []Setting
		defaults any
		load     func(path string) (any, error)
	}{
		"daemon": {Settings(), Default(), func(path string) (any, error) { return Load(path, nil) }},
		"hub":    {HubSettings(), DefaultHub(), func(path string) (any, error) { cfg, _, err := LoadHub(path, nil); return cfg, err }},
	} {
		t.Run(name, func(t *testing.T) {
			text := Example("a program", test.settings)
			uncommented := regexp.MustCompile(`(?m)^#(\w)`).ReplaceAllString(text, "$1")
			for _, s := range test.settings {
				if strings.Count(uncommented, "\n"+s.Name+" = ") != 1 {
					t.Errorf("%s is not in the example", s.Name)
				}
			}
			for line := range strings.Lines(text) {
				if line != "\n" && line[0] != '#' {
					t.Errorf("this line is not a comment: %q", line)
				}
			}
			for _, text := range []string{text, uncommented} {
				path := filepath.Join(t.TempDir(), "example.toml")
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				// Lists that are empty are nil or not.
				got, err := test.load(path)
				if err != nil || notations(got) != notations(test.defaults) {
					t.Errorf("got %v, %v", notations(got), err)
				}
			}
		})
	}
}

// notations returns all values of a Config or Hub.
func notations(configuration any) string {
	copied := reflect.New(reflect.TypeOf(configuration))
	copied.Elem().Set(reflect.ValueOf(configuration))
	var b strings.Builder
	for _, s := range Values(copied.Interface()) {
		b.WriteString(s.Name + " = " + s.Notation() + "\n")
	}
	return b.String()
}

func TestDuration_Notation(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", 30 * time.Second: "30s", time.Minute: "1m", 90 * time.Second: "1m30s", time.Hour: "1h", 90 * time.Minute: "1h30m", 720 * time.Hour: "720h", 10 * time.Minute: "10m", 3601 * time.Second: "1h0m1s"} {
		if got := Duration(d).String(); got != want {
			t.Errorf("%v is written %q, want %q", d, got, want)
		}
	}
}

func TestParseDuration_NumberIsSeconds(t *testing.T) {
	for text, want := range map[string]time.Duration{"30s": 30 * time.Second, "1h30m": 90 * time.Minute, "5": 5 * time.Second, "0": 0, "0.5": 500 * time.Millisecond, "-1": -time.Second, "1.": time.Second} {
		if got, err := ParseDuration(text); got != want || err != nil {
			t.Errorf("%q is %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "s", "soon", "5x", "1h5", ".", "1e3", "0x5", "5 ", "99999999999"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// A number is seconds in files and in the environment too.
func TestLoad_DurationInSeconds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.toml")
	if err := os.WriteFile(file, []byte("default_grace = 5\nhandshake_timeout = 0.5\nclosed_process_retention = \"7\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := Load(file, []string{"EXECWIRE_MAX_WAIT=90"})
	if err != nil || time.Duration(cfg.DefaultGrace) != 5*time.Second || time.Duration(cfg.HandshakeTimeout) != 500*time.Millisecond ||
		time.Duration(cfg.ClosedRetention) != 7*time.Second || time.Duration(cfg.MaxWait) != 90*time.Second {
		t.Errorf("got %+v, %v", cfg, err)
	}
}
