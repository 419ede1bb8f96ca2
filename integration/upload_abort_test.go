package integration

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
)

// partialUploads counts the uploads to a directory of which the server has received a
// part: their files are open and have no name.
func (c *command) partialUploads(t testing.TB, dir string) (count int) {
	t.Helper()
	links, err := filepath.Glob("/proc/" + strconv.Itoa(c.serverPID(t)) + "/fd/*")
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
func (c *command) awaitPartialUploads(t testing.TB, dir string, want int) {
	t.Helper()
	eventually(t, strconv.Itoa(want)+" uploads are partial", func() bool { return c.partialUploads(t, dir) == want })
}

// Nothing of uploads stays on the server that were going on when their client was
// closed.
func TestClose_AbortsUploads(t *testing.T) {
	const uploads = 10
	server := serve(t)
	for _, d := range wires {
		c, err := client.Dial(testContext(t), server.urls[d])
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
				_, err := c.Upload(testContext(t), filepath.Join(dir, strconv.Itoa(i)), from, client.UploadOptions{})
				if !errors.Is(err, client.ErrClosed) {
					t.Errorf("an upload through %s ended with %v", d, err)
				}
			})
		}
		server.awaitPartialUploads(t, dir, uploads)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		uploading.Wait()
		server.awaitPartialUploads(t, dir, 0)
	}
}

// Of the uploads of a tree that a signal ends, the server keeps one, with which the
// same command goes on.
func TestInterruptedTrees_KeepOneUpload(t *testing.T) {
	slow(t)
	const atOnce = 16 // files that cp copies
	server := serve(t)
	src := largeTree(t)
	for _, d := range wires {
		for _, signal := range []unix.Signal{unix.SIGINT, unix.SIGTERM} {
			dir := t.TempDir()
			copying := newCommand(server.remotely(d, "cp", "-r", src, ":"+dir+"/tree")...)
			copying.launch(t)
			server.awaitPartialUploads(t, dir, atOnce)
			copying.send(t, signal)
			if code := copying.await(t); code != 130 {
				t.Errorf("cp through %s: exit code %d after %v, %q", d, code, signal, copying.errors.String())
			}
			server.awaitPartialUploads(t, dir, 1)
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

// Clients that are killed amid more uploads than the server keeps leave those that it
// keeps, and the next client of their principal uploads at once.
func TestKilledUploads_DoNotLockOut(t *testing.T) {
	slow(t)
	const clients, most, kept = 5, 70, 64
	server := serve(t)
	src, dir := largeTree(t), t.TempDir()
	var copying [clients]*command
	for i := range copying {
		copying[i] = newCommand(server.remotely(unixDoor, "cp", "-r", src, ":"+dir+"/"+strconv.Itoa(i))...)
		copying[i].launch(t)
	}
	eventually(t, "there are more uploads than the server keeps", func() bool { return server.partialUploads(t, dir) > most })
	for _, c := range copying {
		c.kill()
	}
	one := fileTree(t, map[string]string{"one": string(randomBytes(1 << 20))})
	for range 2 {
		server.expectCommand(t, unixDoor, result{}, "cp", one+"/one", ":"+dir+"/one")
	}
	server.awaitPartialUploads(t, dir, kept)
}

// endless is a reader of zeros.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
