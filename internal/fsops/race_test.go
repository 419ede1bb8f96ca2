package fsops_test

import (
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/fsops"
)

// swapping exchanges two names repeatedly until stop is called.
func swapping(t *testing.T, one, other string) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				// This fails after one of them was removed.
				_ = unix.Renameat2(unix.AT_FDCWD, one, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
			}
		}
	})
	return func() {
		close(done)
		swapper.Wait()
	}
}

// A link that replaces a file during a copy is not followed.
func TestCopy_ConcurrentSwap_StaysInTree(t *testing.T) {
	for range 100 {
		dir := build(t, "secret = secret", "top/", "top/f = public", "top/l -> ../secret")
		stop := swapping(t, dir+"/top/f", dir+"/top/l")
		_, err := fsops.Copy(t.Context(), dir+"/top", dir+"/copy", true)
		stop()
		if kind := fsops.KindOf(err); err != nil && kind != fsops.SymlinkLoop && kind != fsops.Failed {
			t.Errorf("the copy failed with %v", err)
		}
		for _, name := range []string{"/copy/f", "/copy/l"} {
			info, err := os.Lstat(dir + name)
			if err != nil || info.Mode()&os.ModeSymlink != 0 {
				continue
			}
			if content, _ := os.ReadFile(dir + name); string(content) == "secret" {
				t.Errorf("%s has the content of the link's target", name)
			}
		}
	}
}
