package gateway

import (
	"os"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/sandbox"
)

// clientPolicies are the literal policies that client versions send for a writable
// workspace, WORK; HOME is the client's own directory.
var clientPolicies = map[string]string{
	"0.132": `{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[
		{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},
		{"path":{"type":"path","path":"WORK"},"access":"write"},
		{"path":{"type":"special","value":{"kind":"slash_tmp"}},"access":"write"},
		{"path":{"type":"special","value":{"kind":"tmpdir"}},"access":"write"},
		{"path":{"type":"path","path":"WORK/.git"},"access":"read"},
		{"path":{"type":"path","path":"WORK/.agents"},"access":"read"},
		{"path":{"type":"path","path":"WORK/.codex"},"access":"read"},
		{"path":{"type":"path","path":"HOME/memories"},"access":"write"}]},"network":"restricted"},
		"windowsSandboxLevel":"disabled","windowsSandboxPrivateDesktop":false,"useLegacyLandlock":false}`,
	"0.169": `{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[
		{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},
		{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"},
		{"path":{"type":"special","value":{"kind":"slash_tmp"}},"access":"write"},
		{"path":{"type":"special","value":{"kind":"tmpdir"}},"access":"write"},
		{"path":{"type":"special","value":{"kind":"project_roots","subpath":".git"}},"access":"read","missing_path_behavior":"skip"},
		{"path":{"type":"special","value":{"kind":"project_roots","subpath":".agents"}},"access":"read","missing_path_behavior":"skip"},
		{"path":{"type":"special","value":{"kind":"project_roots","subpath":".codex"}},"access":"read","missing_path_behavior":"skip"},
		{"path":{"type":"special","value":{"kind":"project_roots","subpath":".aws"}},"access":"read","missing_path_behavior":"skip"}]},"network":"restricted"},
		"cwd":"file://WORK","workspaceRoots":["file://WORK"],
		"windowsSandboxLevel":"disabled","windowsSandboxPrivateDesktop":false,"useLegacyLandlock":false}`,
}

// A client edits files in a workspace below /tmp and runs a command there.
// Protected paths that do not exist are not created.
func TestClientPolicies_ConfineFilesAndProcesses(t *testing.T) {
	c := confining(t, sandbox.Bubblewrap)
	for version, policy := range clientPolicies {
		for _, repository := range []bool{false, true} {
			s := makeSandboxedFiles(t, c, version == "0.169")
			if !repository {
				do(t, os.RemoveAll(s.dir+"/w/.git"))
			}
			inside := rawJSON(strings.NewReplacer("WORK", s.dir+"/w", "HOME", s.dir+"/out").Replace(policy))
			for _, test := range []struct{ method, name, want string }{
				{"fs/getMetadata", "w/AGENTS.md", isNotThere},
				{"fs/createDirectory", "w/made/deep", succeeds},
				{"fs/writeFile", "w/made/deep/f", succeeds},
				{"fs/readFile", "w/made/deep/f", succeeds},
				{"fs/remove", "w/made", succeeds},
				{"fs/createDirectory", "w/.git/hooks", isReadOnly},
				{"fs/writeFile", "w/.agents/new", isReadOnly},
			} {
				if got := s.outcome(test.method, test.name, inside); got != test.want {
					t.Errorf("%s, repository %v: %s %s: got %q, want %q", version, repository, test.method, test.name, got, test.want)
				}
			}
			script := "echo x >made && ! mkdir .git/hooks && ! mv .git moved && ! rmdir .git && ! echo x >.codex/new && mkdir new && exit 7"
			if kind := s.started("p", script, "cwd", s.path("w"), "sandbox", inside); kind != "linuxSeccomp" {
				t.Errorf("%s: the sandbox type is %s", version, kind)
			}
			if code, _, _ := s.denied("p"); code != 7 {
				t.Errorf("%s, repository %v: the program exits with %d", version, repository, code)
			}
			if _, err := os.Stat(s.dir + "/w/.git/hooks"); !os.IsNotExist(err) {
				t.Errorf("%s, repository %v: the hooks: %v", version, repository, err)
			}
		}
	}
}
