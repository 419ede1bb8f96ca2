package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/execwire/execwire/gateway/files"
	"github.com/execwire/execwire/internal/sandbox"
)

// sandboxedFiles is the directory tree on which the reference was recorded: a
// workspace, and files outside of it.
type sandboxedFiles struct {
	*client
	dir   string
	newer bool
}

// makeSandboxedFiles makes the tree for a client of one of the versions: newer ones write
// paths as URIs.
func makeSandboxedFiles(t *testing.T, c *testServer, newer bool) *sandboxedFiles {
	t.Helper()
	cl, _ := c.attach("")
	dir := realDirectory(t)
	for _, name := range []string{"w/.git", "w/.codex", "w/.agents", "w/deny", "w/sub", "out"} {
		do(t, os.MkdirAll(dir+"/"+name, 0o755))
	}
	for _, name := range []string{"w/f", "w/.git/config", "w/deny/f", "out/f"} {
		do(t, os.WriteFile(dir+"/"+name, []byte("data"), 0o644))
	}
	do(t, os.Symlink("../out/f", dir+"/w/lf"), os.Symlink("../out", dir+"/w/ld"))
	return &sandboxedFiles{client: cl, dir: dir, newer: newer}
}

// path returns a path as the client writes it. Relative names are below the tree.
func (s *sandboxedFiles) path(name string) string {
	if !strings.HasPrefix(name, "/") {
		name = s.dir + "/" + name
	}
	if s.newer {
		return "file://" + name
	}
	return name
}

// sandbox returns a policy of entries like "root=read": root, roots, minimal, or
// a path, and its access. The workspace is w.
func (s *sandboxedFiles) sandbox(entries ...string) map[string]any {
	var list []any
	for _, entry := range entries {
		place, access, _ := strings.Cut(entry, "=")
		var at any = map[string]any{"type": "path", "path": s.path(place)}
		if kind := map[string]string{"root": "root", "roots": "project_roots", "minimal": "minimal"}[place]; kind != "" {
			at = map[string]any{"type": "special", "value": map[string]any{"kind": kind}}
		}
		list = append(list, map[string]any{"path": at, "access": access})
	}
	made := s.permissions(map[string]any{"type": "managed", "network": "restricted",
		"file_system": map[string]any{"type": "restricted", "entries": slices.Concat([]any{}, list)}})
	made["cwd"] = s.path("w")
	if s.newer {
		made["workspaceRoots"] = []string{s.path("w")}
	}
	return made
}

func (s *sandboxedFiles) permissions(permissions map[string]any) map[string]any {
	return map[string]any{"permissions": permissions, "windowsSandboxLevel": "disabled", "windowsSandboxPrivateDesktop": false, "useLegacyLandlock": false}
}

// The outcomes of calls.
const (
	succeeds     = ""
	isReadOnly   = "-32603 Read-only file system (os error 30)"
	isNotThere   = "-32004 No such file or directory (os error 2)"
	isDenied     = "-32600 Permission denied (os error 13)"
	isNotStarted = "-32603 No such file or directory (os error 2)"
)

// outcome makes a call in a sandbox.
func (s *sandboxedFiles) outcome(method, name string, sandbox any) string {
	s.t.Helper()
	params := map[string]any{"path": s.path(name), "sandbox": sandbox}
	switch method {
	case "fs/writeFile":
		params["dataBase64"] = "eA=="
	case "fs/copy", "fs/rename":
		params = map[string]any{"sourcePath": s.path("w/f"), "destinationPath": s.path(name), "recursive": false, "sandbox": sandbox}
	case "fs/walk":
		params["options"] = map[string]any{"maxDepth": 3, "maxDirectories": 10, "maxEntries": 10}
	}
	f := s.call(method, params)
	if f.Error == nil {
		return succeeds
	}
	return strings.TrimSpace(toJSON(f.Error.Code) + " " + f.Error.Message)
}

// What a sandbox permits, and the errors of what it does not, are what was
// observed of both versions of the reference. There is one difference: what
// is denied in a visible directory is -32600 for clients of older versions, too.
func TestFileSandbox_MatchesReference(t *testing.T) {
	c := confining(t, sandbox.Bubblewrap)
	for _, newer := range []bool{false, true} {
		t.Run(map[bool]string{false: "older", true: "newer"}[newer], func(t *testing.T) {
			s := makeSandboxedFiles(t, c, newer)
			readOnly, workspace := s.sandbox("root=read"), s.sandbox("root=read", "roots=write")
			onlyCwd, gone := s.sandbox("root=read", "roots=write"), s.sandbox("root=read")
			delete(onlyCwd, "workspaceRoots")
			gone["cwd"] = s.path("gone")
			cwdGrants, goneIs := succeeds, isNotStarted
			if newer {
				cwdGrants, goneIs = isReadOnly, succeeds
			}
			for i, test := range []struct {
				method, name string
				sandbox      any
				want         string
			}{
				{"fs/readFile", "w/f", readOnly, succeeds},
				{"fs/readFile", "w/none", readOnly, isNotThere},
				{"fs/writeFile", "w/f", readOnly, isReadOnly},
				{"fs/writeFile", "w/none/f", readOnly, isNotThere},
				{"fs/createDirectory", "w/new", readOnly, isReadOnly},
				{"fs/remove", "w/f", readOnly, isReadOnly},
				{"fs/copy", "w/g", readOnly, isReadOnly},
				{"fs/rename", "w/g", readOnly, isReadOnly},
				{"fs/writeFile", "/tmp/execwire-must-not-be-made", readOnly, isReadOnly},

				{"fs/writeFile", "w/f", workspace, succeeds},
				{"fs/writeFile", "w/new", workspace, succeeds},
				{"fs/createDirectory", "w/sub/new", workspace, succeeds},
				{"fs/copy", "w/g", workspace, succeeds},
				{"fs/remove", "w/g", workspace, succeeds},
				{"fs/writeFile", "w/.git/config", workspace, isReadOnly},
				{"fs/writeFile", "w/.codex/new", workspace, isReadOnly},
				{"fs/createDirectory", "w/.agents/new", workspace, isReadOnly},
				{"fs/writeFile", "out/f", workspace, isReadOnly},
				{"fs/readFile", "w/lf", workspace, succeeds},
				{"fs/writeFile", "w/lf", workspace, isReadOnly},
				{"fs/writeFile", "w/ld/new", workspace, isReadOnly},
				{"fs/copy", "out/g", workspace, isReadOnly},
				{"fs/writeFile", "w/sub/named", s.sandbox("root=read", "w/sub=write"), succeeds},
				{"fs/writeFile", "w/named", s.sandbox("root=read", "w/sub=write"), isReadOnly},
				{"fs/writeFile", "w/cwd", onlyCwd, cwdGrants},
				{"fs/readFile", "w/f", gone, goneIs},

				{"fs/readFile", "w/f", s.sandbox("minimal=read", "w=read"), succeeds},
				{"fs/readFile", "out/f", s.sandbox("minimal=read", "w=read"), isNotThere},
				{"fs/getMetadata", "out", s.sandbox("minimal=read", "w=read"), isNotThere},
				{"fs/readFile", "w/lf", s.sandbox("minimal=read", "w=read"), isNotThere},
				{"fs/writeFile", "w/lf", s.sandbox("minimal=read", "w=write"), isNotThere},
				{"fs/readFile", "w/f", s.sandbox("minimal=read"), isNotThere},

				{"fs/readFile", "w/deny/f", s.sandbox("root=read", "roots=write", "w/deny=none"), isDenied},
				{"fs/readDirectory", "w", s.sandbox("root=read", "roots=write", "w/deny=none"), succeeds},

				{"fs/writeFile", "out/f", s.permissions(map[string]any{"type": "disabled"}), succeeds},
				{"fs/writeFile", "out/f", s.permissions(map[string]any{"type": "external", "network": "restricted"}), succeeds},
				{"fs/writeFile", "out/f", s.permissions(map[string]any{"type": "managed", "file_system": map[string]any{"type": "unrestricted"}, "network": "restricted"}), succeeds},

				{"fs/canonicalize", "w/lf", readOnly, succeeds},
				{"fs/canonicalize", "w/lf", s.sandbox("minimal=read", "w=read"), isNotThere},
				{"fs/walk", "w", readOnly, succeeds},
				{"fs/walk", "out", s.sandbox("minimal=read", "w=read"), isNotThere},
				{"fs/rename", "w/h", workspace, succeeds},
			} {
				if got := s.outcome(test.method, test.name, test.sandbox); got != test.want {
					t.Errorf("%d: %s %s: got %q, want %q", i, test.method, test.name, got, test.want)
				}
			}
			if got, err := os.ReadFile(s.dir + "/w/.git/config"); err != nil || string(got) != "data" {
				t.Errorf("the configuration of the repository is %q, %v", got, err)
			}
		})
	}
}

// Streams, handles and watches are confined as single calls are.
func TestFileSandbox_StreamsHandlesAndWatches(t *testing.T) {
	s := makeSandboxedFiles(t, confining(t, sandbox.Bubblewrap), true)
	repeats := 300_000
	if testing.Short() {
		repeats = files.WholeWrite/16 + 1 // more than one message of the server
	}
	content := bytes.Repeat([]byte("0123456789abcdef"), repeats)
	do(t, os.WriteFile(s.dir+"/w/large", content, 0o644))
	inside, workspace := s.sandbox("minimal=read", "w=read"), s.sandbox("root=read", "roots=write")
	var read struct{ DataBase64 []byte }
	s.decode(s.must("fs/readFile", map[string]any{"path": s.path("w/large"), "sandbox": inside}), &read)
	if !bytes.Equal(read.DataBase64, content) {
		t.Errorf("got %d bytes, or a different content", len(read.DataBase64))
	}
	data := base64.StdEncoding.EncodeToString(content)
	s.must("fs/writeFile", map[string]any{"path": s.path("w/copy"), "dataBase64": data, "sandbox": workspace})
	s.must("fs/writeFile", map[string]any{"path": s.path("w/replaced"), "dataBase64": data, "atomic": true, "sandbox": workspace})
	for _, name := range []string{"w/copy", "w/replaced"} {
		if got, err := os.ReadFile(s.dir + "/" + name); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s has %d bytes, or a different content: %v", name, len(got), err)
		}
	}
	s.refused("fs/writeFile", map[string]any{"path": s.path("out/copy"), "dataBase64": data, "sandbox": workspace}, -32603, "Read-only file system (os error 30)")
	s.refused("fs/writeFile", map[string]any{"path": s.path("out/copy"), "dataBase64": data, "atomic": true, "sandbox": workspace}, -32603, "Read-only file system (os error 30)")

	s.must("fs/open", map[string]any{"handleId": "r", "path": s.path("w/large"), "sandbox": inside})
	s.must("fs/open", map[string]any{"handleId": "w", "path": s.path("w/block"), "mode": "replace", "sandbox": workspace})
	s.must("fs/writeBlock", map[string]any{"handleId": "w", "offset": 0, "chunk": "eA=="})
	var block struct {
		Chunk []byte
		EOF   bool
	}
	s.decode(s.must("fs/readBlock", map[string]any{"handleId": "r", "offset": 16, "len": 4}), &block)
	if string(block.Chunk) != "0123" || block.EOF {
		t.Errorf("the block is %+v", block)
	}
	s.must("fs/close", map[string]any{"handleId": "r"})
	s.must("fs/close", map[string]any{"handleId": "w"})
	s.refused("fs/open", map[string]any{"handleId": "r", "path": s.path("out/f"), "sandbox": inside}, -32004, "os error 2")
	s.refused("fs/open", map[string]any{"handleId": "r", "path": s.path("out/f"), "mode": "replace", "sandbox": workspace}, -32603, "os error 30")

	s.must("fs/watch", map[string]any{"watchId": 1, "path": s.path("w"), "sandbox": inside})
	do(t, os.WriteFile(s.dir+"/w/watched", nil, 0o644))
	s.wait("the change", func(f frame) bool { return f.Method == "fs/changed" && bytes.Contains(f.raw, []byte("watched")) })
	s.must("fs/unwatch", map[string]any{"watchId": 1})
	s.refused("fs/watch", map[string]any{"watchId": 1, "path": s.path("out"), "sandbox": inside}, -32004, "os error 2")
	s.must("fs/watchMissing", map[string]any{"watchId": 2, "missing": []string{s.path("w/missing")}, "sandbox": inside})
	do(t, os.WriteFile(s.dir+"/w/missing", nil, 0o644))
	s.wait("what was missing", func(f frame) bool { return f.Method == "fs/missingChanged" })
}

// Policies without paths of their own confine file calls, too.
func TestFileSandbox_OlderShapes(t *testing.T) {
	s := makeSandboxedFiles(t, confining(t, sandbox.Bubblewrap), false)
	quoted := func(name string) string { return toJSON(s.path(name)) }
	for _, test := range []struct{ members, name, want string }{
		{`"sandboxPolicy":{"type":"readOnly"}`, "w/f", isReadOnly},
		{`"sandboxPolicy":{"type":"workspaceWrite","writableRoots":[` + quoted("w") + `],"excludeSlashTmp":true,"excludeTmpdirEnvVar":true}`, "w/f", succeeds},
		{`"sandboxPolicy":{"type":"workspaceWrite","writableRoots":[` + quoted("w") + `],"excludeSlashTmp":true,"excludeTmpdirEnvVar":true}`, "out/f", isReadOnly},
		{`"sandbox":{"type":"ReadOnly"}`, "w/f", isReadOnly},
		{`"sandbox":{"sandboxPolicy":{"type":"workspace-write","exclude_slash_tmp":true,"exclude_tmpdir_env_var":true},"sandboxPolicyCwd":` + quoted("w") + `}`, "w/f", succeeds},
		{`"sandbox":{"sandboxPolicy":{"type":"read-only"},"additionalPermissions":{"file_system":{"write":[` + quoted("out") + `]}}}`, "out/f", succeeds},
	} {
		f := s.call("fs/writeFile", json.RawMessage(`{"path":`+quoted(test.name)+`,"dataBase64":"",`+test.members+`}`))
		got := succeeds
		if f.Error != nil {
			got = toJSON(f.Error.Code) + " " + f.Error.Message
		}
		if got != test.want {
			t.Errorf("%s of %s: got %q, want %q", test.members, test.name, got, test.want)
		}
	}
}
