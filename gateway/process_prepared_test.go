package gateway

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPreparedCommand_IsExecutedUnchanged(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	directory := t.TempDir()
	program := filepath.Join(directory, "a program")
	if err := os.Symlink("/bin/sh", program); err != nil {
		t.Fatal(err)
	}
	const script = "echo $0; pwd; env | grep -v -e PWD -e SHLVL -e '^_='; exit 3"
	for id, executable := range map[string]string{"path": program, "uri": "file://" + strings.ReplaceAll(program, " ", "%20")} {
		cl.start(id, "", "executable", executable, "argv", []string{"named", "-c", script}, "cwd", directory, "env", map[string]string{"A": "1"})
		text, code := cl.output(id, 1)
		if want := "named\n" + directory + "\nA=1\n"; text != want || code != 3 {
			t.Errorf("%s: it wrote %q and exited with %d, want %q", id, text, code, want)
		}
	}
	// With a terminal, nothing is added to the environment either.
	cl.start("terminal", "", "executable", "/bin/sh", "argv", []string{"other", "-c", "env"}, "tty", true)
	if text, _ := cl.output("terminal", 1); strings.Contains(text, "SHELL=") {
		t.Errorf("with a terminal it wrote %q", text)
	}
	if argv := cl.list().Processes[1].Argv; len(argv) != 3 || argv[0] != "other" {
		t.Errorf("its arguments are listed as %q", argv)
	}
}

func TestPreparedCommand_Invalid_Fails(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	policy := map[string]any{"inherit": "none", "ignoreDefaultExcludes": true, "exclude": []string{}, "set": map[string]string{}, "includeOnly": []string{}}
	for _, test := range []struct {
		members []any
		code    int
		text    string
	}{
		{[]any{"arg0", "x"}, -32602, "`arg0` is not for an `executable`"},
		{[]any{"envPolicy", policy}, -32602, "`envPolicy` is not for an `executable`"},
		{[]any{"sandbox", rawJSON(`{"permissions":{"type":"disabled"}}`)}, -32602, "`sandbox` is not for an `executable`"},
		{[]any{"managedNetwork", map[string]any{}}, -32602, "`managedNetwork` is not for an `executable`"},
		{[]any{"enforceManagedNetwork", false}, -32602, "`enforceManagedNetwork` is not for an `executable`"},
		{[]any{"executable", "sh"}, -32602, "`executable` is not an absolute path"},
		{[]any{"executable", ""}, -32602, "`executable` is not an absolute path"},
		{[]any{"executable", "/bin/sh\x00"}, -32602, "NUL"},
		{[]any{"executable", "http://host/bin/sh"}, -32602, "`executable` is not an absolute path: unsupported path URI scheme"},
		{[]any{"argv", []string{}}, -32602, "argv must not be empty"},
		{[]any{"argv", []string{""}}, -32602, "argv[0]: is empty"},
		{[]any{"executable", "/no/such"}, -32603, "No such file or directory (os error 2)"},
		{[]any{"executable", "/etc/passwd"}, -32603, "Permission denied (os error 13)"},
		{[]any{"cwd", "/no/such"}, -32603, "No such file or directory (os error 2)"},
	} {
		cl.refused("process/start", with(startOf("p", "true", "executable", "/bin/sh"), test.members...), test.code, test.text)
	}
	// null counts as absent.
	cl.start("p", "true", "executable", "/bin/sh", "arg0", nil, "envPolicy", nil, "sandbox", nil, "managedNetwork", nil, "enforceManagedNetwork", nil)
	cl.start("direct", "true", "executable", nil)
}

func TestStart_DisabledCommandForm_Fails(t *testing.T) {
	cl, _ := newTestServer(t, func(s *serverSettings) { s.noPrepared = true }).attach("")
	refusal := cl.refused("process/start", startOf("p", "true", "executable", "/bin/sh"), -32600, "allow_prepared_exec")
	if refusal.Data["reason"] != "COMMAND_FORM_DISABLED" || refusal.Data["setting"] != "allow_prepared_exec" || refusal.Data["form"] != "prepared" {
		t.Errorf("the data is %v", refusal.Data)
	}
	cl.start("p", "true")
	cl, _ = newTestServer(t, func(s *serverSettings) { s.noDirect = true }).attach("")
	cl.refused("process/start", startOf("p", "true"), -32600, "allow_direct_exec")
	cl.start("p", "true", "executable", "/bin/sh")
}
