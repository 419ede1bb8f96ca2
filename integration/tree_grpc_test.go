package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/execwire/execwire/client"
)

// A real source tree is uploaded, changed, synced and downloaded over gRPC, and is
// the same at each end, with its modes and links: over a connection that holds,
// and over one that is cut again and again.
func TestASourceTreeOverGRPC(t *testing.T) {
	slow(t)
	for _, d := range wires {
		for _, cuts := range []int{0, 10} {
			t.Run(fmt.Sprintf("%s, %d cuts", d, cuts), func(t *testing.T) {
				seed := rand.Uint64()
				t.Logf("the seed is %d", seed)
				random := rand.New(rand.NewPCG(seed, 0))
				server := newServer(t, nil)
				wire := newProxy(t, d.network(), server.address(d))
				if cuts > 0 {
					wire.cutAfter(func() int64 { return 1<<20 + random.Int64N(6<<20) })
				}
				c, err := client.Dial(testContext(t), wire.url())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				source, there, back := realTree(t), filepath.Join(shortDir(t), "there"), filepath.Join(shortDir(t), "back")
				for link, target := range map[string]string{"link": "README.md", "to-directory": "unicode", "nowhere": "none/../such"} {
					if err := os.Symlink(target, filepath.Join(source, link)); err != nil {
						t.Fatal(err)
					}
				}
				all := client.TransferOptions{Recursive: true, Checksum: true, Delete: true}

				first := pictureOf(t, source, true)
				done, err := c.Push(testContext(t), source, there, all)
				if err != nil || done.Files != len(first.filesOf(true)) || done.Links != 3 {
					t.Errorf("uploading: %+v, %v", done, err)
				}
				first.expect(t, "uploaded", there, true)

				changeTree(t, source, rand.New(rand.NewPCG(seed, 1)))
				second := pictureOf(t, source, true)
				if changed := len(second.differences(first)); changed < 50 {
					t.Errorf("only %d paths were changed", changed)
				}
				done, err = c.Push(testContext(t), source, there, all)
				if gone := removedFrom(source, first); err != nil || done.Skipped < 300 || done.Files < 30 || done.Deleted < gone || gone == 0 {
					t.Errorf("syncing: %+v, %v; %d files and directories are gone", done, err, gone)
				}
				second.expect(t, "synced", there, true)

				for round := uint64(2); round < 4 || wire.cutCount() < cuts; round++ {
					done, err = c.Pull(testContext(t), there, back, all)
					if err != nil {
						t.Errorf("downloading: %+v, %v", done, err)
					}
					pictureOf(t, there, true).expect(t, "downloaded", back, true)
					changeTree(t, there, rand.New(rand.NewPCG(seed, round)))
				}
				t.Logf("%d cuts", wire.cutCount())
			})
		}
	}
}

// removedFrom counts the files and directories of a picture that a tree has no more, each directory with all below it
// as one.
func removedFrom(dir string, before picture) (gone int) {
	for path := range before {
		parent, err := os.Lstat(filepath.Join(dir, filepath.Dir(path)))
		if _, lost := os.Lstat(filepath.Join(dir, path)); lost != nil && err == nil && parent.IsDir() {
			gone++
		}
	}
	return gone
}
