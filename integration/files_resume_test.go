package integration

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/execwire/execwire/client"
)

// A download that was interrupted is gone on with by the next one, in another
// program as well, and not if the file was changed; nobody sees a part of it.
func TestInterruptedDownloadsAreGoneOnWith(t *testing.T) {
	s := newServer(t, nil)
	for _, d := range doors {
		conn, _ := s.connect(t, d)
		c := client.New(conn)
		src, dir := filepath.Join(t.TempDir(), "src"), t.TempDir()
		dest := filepath.Join(dir, "dest")
		content := randomBytes(6 << 20)
		write := func() {
			t.Helper()
			if err := os.WriteFile(src, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		// pull pulls until at least stop bytes are there, and returns how many were
		// there at first.
		pull := func(stop int64) (first int64, err error) {
			ctx, cancel := context.WithCancelCause(testContext(t))
			defer cancel(errStop)
			first = -1
			_, err = c.Pull(ctx, src, dest, client.TransferOptions{OnProgress: func(p client.TransferProgress) {
				if first < 0 {
					first = p.Done
				}
				if p.Done >= stop {
					cancel(errStop)
				}
			}})
			return first, err
		}
		interrupt := func() int64 {
			t.Helper()
			_, err := pull(2 << 20)
			var interrupted *client.InterruptedError
			if !errors.As(err, &interrupted) || !errors.Is(err, errStop) || interrupted.Size < 2<<20 {
				t.Fatalf("%s: interrupted: %v", d, err)
			}
			if names, err := filepath.Glob(dir + "/.*.execwire-part"); len(names) != 1 || err != nil {
				t.Fatalf("%s: what was kept: %q, %v", d, names, err)
			}
			return interrupted.Size
		}
		expect := func() {
			t.Helper()
			if got, err := os.ReadFile(dest); !bytes.Equal(got, content) {
				t.Errorf("%s: %d bytes came, %v", d, len(got), err)
			}
			expectNoParts(t, dir)
		}
		write()
		kept := interrupt()
		if _, err := os.Lstat(dest); !os.IsNotExist(err) {
			t.Errorf("%s: a part of it is seen: %v", d, err)
		}
		if first, err := pull(1 << 40); err != nil || first < kept {
			t.Errorf("%s: it goes on at %d after %d: %v", d, first, kept, err)
		}
		expect()
		interrupt()
		content = randomBytes(5 << 20)
		write()
		if _, err := pull(1 << 40); err != nil {
			t.Errorf("%s: changed: %v", d, err)
		}
		expect()
		// What somebody else has put there is not taken for a part.
		interrupt()
		names, _ := filepath.Glob(dir + "/.*.execwire-part")
		if err := os.WriteFile(names[0], randomBytes(3<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := pull(1 << 40); err != nil {
			t.Errorf("%s: damaged: %v", d, err)
		}
		expect()
	}
}

// A server cannot make a client write outside of the destination.
func TestPullsStayInTheirDestination(t *testing.T) {
	s := newServer(t, nil)
	conn, _ := s.connect(t, unixDoor)
	src := fileTree(t, map[string]string{"sub/file": "evil"})
	dir, outside := t.TempDir(), t.TempDir()
	if err := os.Mkdir(dir+"/dest", 0o755); err != nil {
		t.Fatal(err)
	}
	// As a link that came before, or that somebody has put there.
	if err := os.Symlink(outside, dir+"/dest/sub"); err != nil {
		t.Fatal(err)
	}
	_, err := client.New(conn).Pull(testContext(t), src, dir+"/dest", client.TransferOptions{Recursive: true})
	if !errors.As(err, new(*client.TransferError)) {
		t.Errorf("got %v", err)
	}
	if names, err := os.ReadDir(outside); len(names) > 0 || err != nil {
		t.Errorf("outside there is %v, %v", names, err)
	}
}
