package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/execwire/execwire/internal/sandbox"
)

// confining returns a server with one sandbox backend.
func confining(t *testing.T, backend sandbox.Backend) *testServer {
	t.Helper()
	without := slices.DeleteFunc([]sandbox.Backend{sandbox.Bubblewrap, sandbox.Landlock}, func(b sandbox.Backend) bool { return b == backend })
	sandboxes := sandbox.New(sandbox.Options{Without: without})
	t.Cleanup(sandboxes.Close)
	for _, status := range sandboxes.Statuses() {
		if status.Backend == backend && status.Err != nil {
			t.Fatal(status.Err)
		}
	}
	return newTestServer(t, func(s *serverSettings) { s.sandboxes = sandboxes })
}

// realDirectory returns an empty directory by a path without links.
func realDirectory(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// writableIn is a policy that permits reading everything and writing one directory.
func writableIn(dir string) rawJSON {
	return rawJSON(fmt.Sprintf(`{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[
		{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},
		{"path":{"type":"path","path":%q},"access":"write"}]},"network":"restricted"},"windowsSandboxLevel":"disabled"}`, "file://"+dir))
}

// started starts a process and returns the reported sandbox type.
func (cl *client) started(id, script string, members ...any) string {
	cl.t.Helper()
	var answer startResult
	cl.decode(cl.must("process/start", with(startOf(id, script), members...)), &answer)
	return answer.SandboxType
}

// denied waits until a process has closed and returns its exit code, and what the
// exited event and process/read report about denials.
func (cl *client) denied(id string) (code int64, reported, read bool) {
	cl.t.Helper()
	var answer struct {
		NextSeq       uint64
		Closed        bool
		ExitCode      *int64
		SandboxDenied bool
	}
	for after := uint64(0); !answer.Closed; after = answer.NextSeq - 1 {
		cl.decode(cl.must("process/read", map[string]any{"processId": id, "afterSeq": after, "waitMs": 60_000}), &answer)
	}
	exited, _ := cl.wait("the exit of "+id, func(f frame) bool { return f.Method == "process/exited" && f.Params.ProcessID == id })
	return *answer.ExitCode, exited.Params.SandboxDenied, answer.SandboxDenied
}

func TestStart_Sandbox_ConfinesAndReports(t *testing.T) {
	for _, backend := range []sandbox.Backend{sandbox.Bubblewrap, sandbox.Landlock} {
		t.Run(backend.String(), func(t *testing.T) {
			cl, _ := confining(t, backend).attach("")
			inside, outside := realDirectory(t), realDirectory(t)
			policy := writableIn(inside)
			for i, test := range []struct {
				script  string
				members []any
				kind    string
				code    int64
				denied  bool
			}{
				{"echo x >" + outside + "/g || exit 3", []any{"sandbox", policy}, "linuxSeccomp", 3, true},
				{"echo x >" + outside + "/h", nil, "none", 0, false},
				{"echo x >" + inside + "/f", []any{"sandbox", policy}, "linuxSeccomp", 0, false},
				{"exit 3", []any{"sandbox", policy}, "linuxSeccomp", 3, false},
				{"echo Permission denied; exit 3", nil, "none", 3, false},
				{"kill -SYS $$", []any{"sandbox", policy}, "linuxSeccomp", 159, true},
			} {
				id := fmt.Sprint("p", i)
				if kind := cl.started(id, test.script, test.members...); kind != test.kind {
					t.Errorf("%s runs in %s, want %s", test.script, kind, test.kind)
				}
				code, reported, read := cl.denied(id)
				if code != test.code || reported != test.denied || read != test.denied {
					t.Errorf("%s exits with %d, denied %v, as read %v; want %d, %v", test.script, code, reported, read, test.code, test.denied)
				}
			}
			if of := cl.list().Processes; of[0].SandboxType != "linuxSeccomp" || of[1].SandboxType != "none" {
				t.Errorf("the listed sandbox types are %q and %q", of[0].SandboxType, of[1].SandboxType)
			}
			if _, err := os.Stat(inside + "/f"); err != nil {
				t.Error(err)
			}
			if made, err := filepath.Glob(outside + "/*"); err != nil || !slices.Equal(made, []string{outside + "/h"}) {
				t.Errorf("outside the sandbox there is %v, %v", made, err)
			}
		})
	}
}

// The policy is in the form of the older dialect, and so is the exit
// notification.
func TestCommandExec_Sandbox_Confines(t *testing.T) {
	cl, _ := confining(t, sandbox.Bubblewrap).attach("")
	dir := realDirectory(t)
	do(t, os.Mkdir(dir+"/workspace", 0o755))
	cl.must("command/exec", map[string]any{"processId": "p", "argv": []string{"/bin/sh", "-c", "echo x >in; echo x >../out; test -f in"}, "cwd": dir + "/workspace", "env": map[string]string{}, "tty": false,
		"sandboxPolicy": map[string]any{"type": "workspaceWrite", "excludeSlashTmp": true, "excludeTmpdirEnvVar": true}})
	exited, _ := cl.wait("the exit", func(f frame) bool { return f.Method == "command/exec/exited" })
	if _, err := os.Stat(dir + "/out"); !os.IsNotExist(err) {
		t.Errorf("the file outside: %v", err)
	}
	if _, err := os.Stat(dir + "/workspace/in"); err != nil {
		t.Errorf("%v, and %s", err, exited.raw)
	}
}

// The server, not the gateway, finds the path invalid.
func TestSandbox_RejectedByServer_ReportsReason(t *testing.T) {
	cl, _ := confining(t, sandbox.Landlock).attach("")
	dir := realDirectory(t)
	do(t, os.Mkdir(dir+"/hole", 0o755))
	hole := rawJSON(fmt.Sprintf(`{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[
		{"path":{"type":"path","path":%q},"access":"write"},{"path":{"type":"path","path":%q},"access":"none"}]},"network":"restricted"},"windowsSandboxLevel":"disabled"}`, dir, dir+"/hole"))
	refusal := cl.refused("process/start", with(startOf("p", "true"), "sandbox", hole), -32600, "landlock")
	if refusal.Data["reason"] != "SANDBOX_UNAVAILABLE" {
		t.Errorf("the data is %v", refusal.Data)
	}
	do(t, os.WriteFile(dir+"/f", nil, 0o644))
	below := writableIn(dir + "/f/below")
	for method, params := range map[string]map[string]any{
		"process/start": with(startOf("p", "true"), "sandbox", below),
		"fs/readFile":   {"path": dir + "/f", "sandbox": below},
		"fs/writeFile":  {"path": dir + "/f", "dataBase64": "", "atomic": true, "sandbox": below},
	} {
		refusal := cl.refused(method, params, -32602, "nothing can be below it")
		if refusal.Data["field"] != "sandbox" || refusal.Data["path"] != dir+"/f/below" {
			t.Errorf("the data of %s is %v", method, refusal.Data)
		}
	}
}
