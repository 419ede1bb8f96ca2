package files

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/integration/harness"
)

// partialUploads counts the unfinished uploads to a directory: their files are open and have no
// name.
func partialUploads(c *harness.Command, t testing.TB, dir string) (count int) {
	t.Helper()
	links, err := filepath.Glob("/proc/" + strconv.Itoa(c.ServerPID(t)) + "/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		file, err := os.Readlink(link)
		if err == nil && strings.HasPrefix(file, dir+"/") && strings.HasSuffix(file, " (deleted)") {
			count++
		}
	}
	return count
}

// awaitPartialUploads waits until there are exactly so many.
func awaitPartialUploads(c *harness.Command, t testing.TB, dir string, want int) {
	t.Helper()
	harness.Eventually(t, strconv.Itoa(want)+" uploads are partial", func() bool { return partialUploads(c, t, dir) == want })
}

// Closing a client removes its unfinished uploads from the server.
func TestClose_AbortsUploads(t *testing.T) {
	const uploads = 10
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		c, err := client.Dial(harness.Context(t), server.URLs[d])
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		var uploading sync.WaitGroup
		for i := range uploads {
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _, _ = reader.Close(), writer.Close() })
			uploading.Go(func() {
				from := io.Reader(reader)
				if i == 0 {
					from = io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), endless{})
				} else if _, err := writer.Write(make([]byte, 1<<15)); err != nil {
					t.Error(err)
				}
				_, err := c.Upload(harness.Context(t), filepath.Join(dir, strconv.Itoa(i)), from, client.UploadOptions{})
				if !errors.Is(err, client.ErrClosed) {
					t.Errorf("an upload through %s ended with %v", d, err)
				}
			})
		}
		awaitPartialUploads(server, t, dir, uploads)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		uploading.Wait()
		awaitPartialUploads(server, t, dir, 0)
	}
}

// After a signal the server keeps one of the uploads of a tree, which the same command resumes.
func TestInterruptedTrees_KeepOneUpload(t *testing.T) {
	harness.Slow(t)
	const atOnce = 16 // files that cp copies
	server := harness.Serve(t)
	src := largeTree(t)
	for _, d := range harness.NetworkTransports {
		for _, signal := range []unix.Signal{unix.SIGINT, unix.SIGTERM} {
			dir := t.TempDir()
			copying := harness.NewCommand(server.Remotely(d, "cp", "-r", src, ":"+dir+"/tree")...)
			copying.Launch(t)
			awaitPartialUploads(server, t, dir, atOnce)
			copying.Send(t, signal)
			if code := copying.Await(t); code != 130 {
				t.Errorf("cp through %s: exit code %d after %v, %q", d, code, signal, copying.Errors.String())
			}
			awaitPartialUploads(server, t, dir, 1)
		}
	}
}

// largeTree has more large files than cp copies at once.
func largeTree(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for i := range 20 {
		name := filepath.Join(dir, strconv.Itoa(i))
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, 1<<30); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Clients that are killed during more uploads than the server keeps leave only those, and the
// next client of their principal can upload at once.
func TestKilledUploads_DoNotLockOut(t *testing.T) {
	harness.Slow(t)
	const clients, most, kept = 5, 70, 64
	server := harness.Serve(t)
	src, dir := largeTree(t), t.TempDir()
	var copying [clients]*harness.Command
	for i := range copying {
		copying[i] = harness.NewCommand(server.Remotely(harness.UnixTransport, "cp", "-r", src, ":"+dir+"/"+strconv.Itoa(i))...)
		copying[i].Launch(t)
	}
	harness.Eventually(t, "there are more uploads than the server keeps", func() bool { return partialUploads(server, t, dir) > most })
	for _, c := range copying {
		c.Kill()
	}
	one := harness.FileTree(t, map[string]string{"one": string(harness.RandomBytes(1 << 20))})
	for range 2 {
		server.ExpectCommand(t, harness.UnixTransport, harness.Result{}, "cp", one+"/one", ":"+dir+"/one")
	}
	awaitPartialUploads(server, t, dir, kept)
}

// endless is a reader of zeros.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
