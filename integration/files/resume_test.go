package files

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/integration/harness"
)

// The next download resumes an interrupted one, also in another program, unless the file was
// changed. Parts are not visible.
func TestDownload_Interrupted_Continues(t *testing.T) {
	s := harness.NewServer(t, nil)
	for _, d := range harness.Transports {
		conn, _ := s.Connect(t, d)
		c := client.New(conn)
		src, dir := filepath.Join(t.TempDir(), "src"), t.TempDir()
		dest := filepath.Join(dir, "dest")
		content := harness.RandomBytes(6 << 20)
		write := func() {
			t.Helper()
			if err := os.WriteFile(src, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		// pull pulls until at least stop bytes are there, and returns how many were
		// there at first.
		pull := func(stop int64) (first int64, err error) {
			ctx, cancel := context.WithCancelCause(harness.Context(t))
			defer cancel(harness.ErrStop)
			first = -1
			_, err = c.Pull(ctx, src, dest, client.TransferOptions{OnProgress: func(p client.TransferProgress) {
				if first < 0 {
					first = p.Done
				}
				if p.Done >= stop {
					cancel(harness.ErrStop)
				}
			}})
			return first, err
		}
		interrupt := func() int64 {
			t.Helper()
			_, err := pull(2 << 20)
			var interrupted *client.InterruptedError
			if !errors.As(err, &interrupted) || !errors.Is(err, harness.ErrStop) || interrupted.Size < 2<<20 {
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
				t.Errorf("%s: received %d bytes, %v", d, len(got), err)
			}
			expectNoParts(t, dir)
		}
		write()
		kept := interrupt()
		if _, err := os.Lstat(dest); !os.IsNotExist(err) {
			t.Errorf("%s: a part of it is seen: %v", d, err)
		}
		if first, err := pull(1 << 40); err != nil || first < kept {
			t.Errorf("%s: it resumes at %d after %d: %v", d, first, kept, err)
		}
		expect()
		interrupt()
		content = harness.RandomBytes(5 << 20)
		write()
		if _, err := pull(1 << 40); err != nil {
			t.Errorf("%s: changed: %v", d, err)
		}
		expect()
		// What another program has put there does not count as a part.
		interrupt()
		names, _ := filepath.Glob(dir + "/.*.execwire-part")
		if err := os.WriteFile(names[0], harness.RandomBytes(3<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := pull(1 << 40); err != nil {
			t.Errorf("%s: damaged: %v", d, err)
		}
		expect()
	}
}

// A server cannot make a client write outside of the destination.
func TestPull_StaysInItsDestination(t *testing.T) {
	s := harness.NewServer(t, nil)
	conn, _ := s.Connect(t, harness.UnixTransport)
	src := harness.FileTree(t, map[string]string{"sub/file": "evil"})
	dir, outside := t.TempDir(), t.TempDir()
	if err := os.Mkdir(dir+"/dest", 0o755); err != nil {
		t.Fatal(err)
	}
	// As a link from before, or from another program.
	if err := os.Symlink(outside, dir+"/dest/sub"); err != nil {
		t.Fatal(err)
	}
	_, err := client.New(conn).Pull(harness.Context(t), src, dir+"/dest", client.TransferOptions{Recursive: true})
	if !errors.As(err, new(*client.TransferError)) {
		t.Errorf("got %v", err)
	}
	if names, err := os.ReadDir(outside); len(names) > 0 || err != nil {
		t.Errorf("outside there is %v, %v", names, err)
	}
}
