package upgrade

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

// A recording that the server makes goes on after an upgrade in the same file, with the sizes that the
// terminal had.
func TestUpgrade_RecordingsGoOn(t *testing.T) {
	harness.Waits(t)
	dir := t.TempDir()
	principals := filepath.Join(dir, "principals.toml")
	table := "[[principal]]\nname = \"ci\"\nunix_users = [\"" + strconv.Itoa(os.Getuid()) + "\"]\nallow = [\"all\", \"admin\"]\nrecord = \"terminals\"\n"
	if err := os.WriteFile(principals, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, "EXECWIRE_PRINCIPALS_FILE="+principals, "EXECWIRE_RECORDING_DIRECTORY="+filepath.Join(dir, "recordings"))
	s.expect("shell\n", "run", "--detach", "--id", "shell", "-t", "--", "sh", "-c", "stty -echo; printf 'one \\342'; read x; printf '\\202\\254 two'; exit 3")
	recording := func() string {
		names, _ := filepath.Glob(filepath.Join(dir, "recordings", "*-shell.cast"))
		if len(names) != 1 {
			t.Fatalf("recordings: %v", names)
		}
		content, err := os.ReadFile(names[0])
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	harness.Eventually(t, "the output is recorded", func() bool { return strings.Contains(recording(), `"one "`) })
	s.upgrade()
	if got := harness.Run(t, strings.NewReader("\n"), s.Remotely(harness.UnixTransport, "attach", "-i", "shell")...); got.Code != 3 {
		t.Errorf("attach: %+v", got)
	}
	harness.Eventually(t, "the recording ends", func() bool { return strings.Contains(recording(), `"exit status 3"`) })
	whole := recording()
	for _, part := range []string{`"version":2,"width":80,"height":24`, `of ci"}`, `"m", "the server was upgraded"`, " two"} {
		if !strings.Contains(whole, part) {
			t.Errorf("the recording has no %s: %s", part, whole)
		}
	}
	if n := strings.Count(whole, "one "); n != 1 || strings.Contains(whole, "�") || !strings.Contains(whole, "€") {
		t.Errorf("output is lost or repeated: %s", whole)
	}
	cast := harness.Run(t, nil, s.Remotely(harness.UnixTransport, "logs", "--cast=v3", "shell")...)
	if !strings.HasPrefix(cast.Stdout, `{"version":3,"term":{"cols":80,"rows":24}`) || !strings.HasSuffix(cast.Stdout, ", \"x\", \"3\"]\n") {
		t.Errorf("logs --cast: %+v", cast)
	}
}
