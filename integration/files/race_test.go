package files

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// swapping exchanges two names repeatedly until stop is called, which returns how often.
func swapping(one, other string) (stop func() (swaps int)) {
	done := make(chan struct{})
	var swapper sync.WaitGroup
	swaps := 0
	swapper.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			// It fails once one of them was removed.
			if unix.Renameat2(unix.AT_FDCWD, one, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE) == nil {
				swaps++
			}
		}
	})
	return func() int {
		close(done)
		swapper.Wait()
		return swaps
	}
}

// trap is a tree with a directory and a link to a place outside that can be exchanged.
type trap struct{ outside, top, directory, link string }

const trapFiles = 20

func newTrap(t *testing.T) trap {
	t.Helper()
	dir := harness.ShortDir(t)
	at := trap{outside: dir + "/outside", top: dir + "/top", directory: dir + "/top/a", link: dir + "/top/b"}
	for _, place := range []struct{ path, content string }{{at.outside, "secret"}, {at.directory, "public"}} {
		if err := os.MkdirAll(place.path+"/d", 0o755); err != nil {
			t.Fatal(err)
		}
		for i := range trapFiles {
			for _, name := range []string{"/", "/d/"} {
				if err := os.WriteFile(place.path+name+strconv.Itoa(i), []byte(place.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := os.Symlink(at.outside, at.link); err != nil {
		t.Fatal(err)
	}
	return at
}

// wantOutsideWhole checks that the place outside is unchanged.
func (at trap) wantOutsideWhole(t *testing.T, what string) {
	t.Helper()
	found := 0
	for _, name := range filesBelow(t, at.outside) {
		if content, err := os.ReadFile(name); err == nil && string(content) == "secret" {
			found++
		}
	}
	if found != 2*trapFiles {
		t.Errorf("%s has left %d of %d files outside of its tree", what, found, 2*trapFiles)
	}
}

// filesBelow lists the regular files of a tree; links are not followed.
func filesBelow(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err == nil && d.Type().IsRegular() {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// If a directory is exchanged with a link while its tree is copied or removed, the target of
// the link is not affected.
func TestTrees_ReplacedByLinks_AreNotLeft(t *testing.T) {
	s := harness.NewServer(t, nil)
	files := execwirev1.NewFileSystemServiceClient(s.Core(t))
	c := harness.WebsocketClient(t, s.Address(harness.WebsocketTransport)).Initialize("")
	swaps, rounds := 0, 40
	if testing.Short() {
		rounds = 6
	}
	for round := range rounds {
		at := newTrap(t)
		stop := swapping(at.directory, at.link)
		copied := at.top + "-copy"
		if round%2 == 0 {
			_, err := files.CopyPath(harness.Context(t), &execwirev1.CopyPathRequest{SourcePath: at.top, DestinationPath: copied, Recursive: true})
			if err != nil && client.Reason(err) == 0 {
				t.Error(err)
			}
			_, err = files.RemovePath(harness.Context(t), &execwirev1.RemovePathRequest{Path: at.top, Recursive: true})
			if err != nil && client.Reason(err) == 0 {
				t.Error(err)
			}
		} else {
			c.Call("fs/copy", harness.RPCParams{"sourcePath": at.top, "destinationPath": copied, "recursive": true})
			c.Call("fs/remove", harness.RPCParams{"path": at.top})
		}
		swaps += stop()
		for _, name := range filesBelow(t, copied) {
			if content, err := os.ReadFile(name); err != nil || strings.Contains(string(content), "secret") {
				t.Errorf("%s is in the copy: %q, %v", name, content, err)
			}
		}
		at.wantOutsideWhole(t, "copying and removing")
	}
	if swaps == 0 {
		t.Error("nothing was exchanged")
	}
}
