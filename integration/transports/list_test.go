package transports

import (
	"github.com/execwire/execwire/integration/harness"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Servers of the exec-server protocol list a link as its target.
func TestLs_ReferenceServer_DoesNotFollowLinks(t *testing.T) {
	for _, c := range []contract{olderContract(), newerContract()} {
		site := openReference(t, c)
		dir := harness.FileTree(t, map[string]string{"a/b": "", "c/": ""})
		for link, target := range map[string]string{"a/loop": ".", "a/up": ".."} {
			if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
				t.Fatal(err)
			}
		}
		want := strings.NewReplacer("D", dir).Replace("D:\na\nc\n\nD/a:\nb\nloop\nup\n\nD/c:\n")
		if got := harness.Run(t, nil, "ls", "--server", site.url, "-R", dir); got != (harness.Result{Stdout: want}) {
			t.Errorf("from %s: %+v, want %q", c.name, got, want)
		}
	}
}
