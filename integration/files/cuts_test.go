package files

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/integration/harness"
)

// A file survives upload and download unchanged while the connection is cut repeatedly, from
// sources that can seek and from those that cannot.
func TestFiles_Cuts_AreComplete(t *testing.T) {
	harness.Waits(t)
	content := harness.RandomBytes(harness.CutBytes())
	harness.WithConnectionCuts(t, 2<<20, func(t *testing.T, ctx context.Context, c *client.Client, _ *harness.Command, cut func()) {
		cut()
		path := filepath.Join(t.TempDir(), "file")
		for name, from := range map[string]io.Reader{
			"seeking": bytes.NewReader(content), "not seeking": io.MultiReader(bytes.NewReader(content)),
		} {
			uploaded, err := c.Upload(ctx, path, from, client.UploadOptions{})
			if err != nil || uploaded.Size != int64(len(content)) {
				t.Fatalf("%s: %d bytes, %v", name, uploaded.Size, err)
			}
			if got, err := os.ReadFile(path); !bytes.Equal(got, content) {
				t.Fatalf("%s: it arrived otherwise, %v", name, err)
			}
			var got bytes.Buffer
			if _, err := c.Download(ctx, path, &got, client.DownloadOptions{}); err != nil || !bytes.Equal(got.Bytes(), content) {
				t.Fatalf("received %d bytes back, %v", got.Len(), err)
			}
		}
		expectNoParts(t, filepath.Dir(path))
	})
}

// expectNoParts checks that a directory has no unexpected files.
func expectNoParts(t testing.TB, dir string) {
	t.Helper()
	if names, err := filepath.Glob(dir + "/.*"); len(names) > 0 || err != nil {
		t.Errorf("left behind: %q, %v", names, err)
	}
}
