package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckFile_ReportsEveryErrorWithItsPlace(t *testing.T) {
	for name, test := range map[string]struct {
		text  string
		check func(string) []*Error
		want  string // without the path
	}{
		"nothing": {"# only a comment\n", CheckFile, ""},
		"names, types and ranges": {
			"# comment\ndefault_grace = \"2m\"\n  max_gace = \"1h\"\nlisten = [\n  1]\nwindow_bytes = \"9GiB\"\n[max_wait]\na = 1\n[no.such]\nb = 1\n\"ws auth\" = 2\n", CheckFile,
			`:3:3: max_gace is not a setting: did you mean max_grace? execwire config example lists them
:4:10: listen holds 1, which is not text
:6:16: window_bytes is above 1GiB: the range is 0 to 1GiB
:7:1: max_wait cannot be map[a:1]; it is measured in duration
:9:1: no is not a setting: execwire config example lists them
`},
		"names with dots":   {"executors.a.b = 1\n\nexecutors.c = 2\n", CheckHubFile, ":1:17: executors cannot be map[a:map[b:1] c:2]; it is measured in executors\n"},
		"a secret":          {"ws_token_sha256 = ['ab']\n", CheckFile, ":1:19: ws_token_sha256 has a value of another type; it is measured in text\n"},
		"capitals":          {"Default_Grace = '1s'", CheckFile, ":1:1: Default_Grace is not a setting: write default_grace\n"},
		"no TOML":           {"max_grace = '1h'\n\nb = \n", CheckFile, ":3:5: is not TOML: expected value but found '\\n' instead\n"},
		"a name twice":      {"executors = 1\n executors = 2\n", CheckHubFile, ":2:2: is not TOML: Key 'executors' has already been defined.\n"},
		"contradictions":    {"max_grace = '1s'\nws_token_sha256 = 'ab'\n\n\tstdin_queue_bytes = '4KiB'\n", CheckFile, ": ws_auth has to be capability-token or signed-bearer-token for what is set beside it to have an effect\n:1:13: max_grace is below default_grace: raise it to at least 30s\n:4:22: stdin_queue_bytes is below stdin_write_bytes: raise it to at least 1MiB\n"},
		"of a hub":          {"frame_bytes = '64MiB'\nqueue_bytes_total = '1MiB'\npublic_url = 'x'\n", CheckHubFile, ":2:21: queue_bytes_total is below frame_bytes: raise it to at least 64MiB\n:3:14: public_url cannot be \"x\": write for example https://hub.example.org\n"},
		"default of listen": {"remote = 'https://a'\nexecutor_id = 'a'\n", CheckFile, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.toml")
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, e := range test.check(path) {
				got.WriteString(strings.TrimPrefix(e.Finding(), path) + "\n")
			}
			if got.String() != test.want {
				t.Errorf("got\n%s\nwant\n%s", got.String(), test.want)
			}
		})
	}
	if got := CheckFile("/nonexistent/a.toml"); len(got) != 1 || !strings.Contains(got[0].Error(), "/nonexistent/a.toml: does not exist") {
		t.Errorf("of no file: %v", got)
	}
}

// An error names the place of the setting that is wrong: that of the last source.
func TestLoad_Error_NamesTheSource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.toml")
	if err := os.WriteFile(path, []byte("\nmax_grace = '1s'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		environ []string
		over    func(*Config)
		want    string
	}{
		{nil, func(*Config) {}, "configuration " + path + ":2:13: max_grace is below"},
		{[]string{"EXECWIRE_MAX_GRACE=2s"}, func(*Config) {}, "configuration EXECWIRE_MAX_GRACE: max_grace is below"},
		{nil, func(c *Config) { c.MaxGrace = 0 }, "configuration: max_grace is below"},
	} {
		if _, err := Load(path, test.environ, test.over); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%q: got %v, want %q", test.environ, err, test.want)
		}
	}
}
