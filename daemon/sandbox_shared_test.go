package daemon_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testrace"
)

// temporaryOnly grants writing to /tmp and TMPDIR.
const temporaryOnly = `{"managed": {"fileSystem": {"restricted": {"entries": [
	{"special": {"kind": "SPECIAL_PATH_KIND_ROOT"}, "access": "SANDBOX_ACCESS_READ"},
	{"special": {"kind": "SPECIAL_PATH_KIND_SLASH_TMP"}, "access": "SANDBOX_ACCESS_WRITE"},
	{"special": {"kind": "SPECIAL_PATH_KIND_TMPDIR"}, "access": "SANDBOX_ACCESS_WRITE"}]}}}}`

// In a shared TMPDIR any user can create the protected names as other kinds of files. A
// server that requires workspace-write starts, and processes and file calls work.
func TestRequiredSandbox_ObstaclesInTmpdir(t *testing.T) {
	testrace.Slow(t)
	for name, obstruct := range map[string]func(at, work string) error{
		"link":          func(at, work string) error { return os.Symlink(work, at) },
		"dangling link": func(at, _ string) error { return os.Symlink("/nowhere", at) },
		"FIFO":          func(at, _ string) error { return unix.Mkfifo(at, 0o666) },
		"gitdir file":   func(at, work string) error { return os.WriteFile(at, []byte("gitdir: "+work+"/src\n"), 0o644) },
		"directory":     func(at, _ string) error { return os.Mkdir(at, 0) },
	} {
		for _, backend := range []string{"bubblewrap", "landlock"} {
			t.Run(backend+"/"+name, func(t *testing.T) {
				shared, work := t.TempDir(), t.TempDir()
				err := errors.Join(os.Chmod(shared, os.ModeSticky|0o777), os.Mkdir(work+"/src", 0o755))
				for _, protected := range []string{".git", ".agents", ".codex"} {
					at := filepath.Join(shared, protected)
					err = errors.Join(err, obstruct(at, work), os.Lchown(at, 65534, 65534))
				}
				if err != nil {
					t.Fatal(err)
				}
				t.Setenv("TMPDIR", shared)
				at := []string{shared}
				e := embed(t, func(c *config.Config) {
					c.SandboxBackends = []string{backend}
					if backend == "landlock" { // which cannot protect paths in a workspace root
						c.RequiredSandbox = writeFile(t, 0o600, "policy.json", temporaryOnly)
						return
					}
					c.RequiredSandbox, c.SandboxWritableRoots = "workspace-write", []string{work}
					at = append(at, work, work+"/src")
				})
				for _, dir := range at {
					_, err := client.New(e.Conn()).Run(e.ctx, client.RunOptions{Process: &execwirev1.StartProcessRequest{
						ProcessId: "in" + filepath.Base(dir),
						Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{Direct: &execwirev1.DirectCommand{
							Argv: []string{"/bin/sh", "-c", "echo text >" + dir + "/started"}, WorkingDirectory: "/"}}}}})
					if err != nil {
						t.Errorf("a start: %v", err)
					}
					if text, err := os.ReadFile(dir + "/started"); err != nil || string(text) != "text\n" {
						t.Errorf("a process wrote %q, %v", text, err)
					}
					if _, err := client.New(e.Conn()).Files().WriteFile(e.ctx, &execwirev1.WriteFileRequest{Path: dir + "/written"}); err != nil {
						t.Errorf("a file call: %v", err)
					}
				}
			})
		}
	}
}
