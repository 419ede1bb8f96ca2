package files

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/integration/harness"
)

// cutsOfTrees is how often a connection is cut while trees are copied. What holds with cuts
// holds without, so only a soak tests both.
func cutsOfTrees() []int {
	if testing.Short() {
		return []int{5}
	}
	if harness.Soak() {
		return []int{0, 10}
	}
	return []int{10}
}

// A real source tree is uploaded, changed, synced and downloaded over gRPC, and is equal at
// each end, with modes and links: without cuts and with repeated cuts.
func TestSourceTree_GRPC(t *testing.T) {
	harness.Slow(t)
	for _, d := range harness.NetworkTransports {
		for _, cuts := range cutsOfTrees() {
			t.Run(fmt.Sprintf("%s, %d cuts", d, cuts), func(t *testing.T) {
				seed := rand.Uint64()
				t.Logf("the seed is %d", seed)
				random := rand.New(rand.NewPCG(seed, 0))
				server := harness.NewServer(t, nil)
				wire := harness.NewProxy(t, d.Network(), server.Address(d))
				if cuts > 0 {
					wire.CutAfter(func() int64 { return 1<<20 + random.Int64N(6<<20) })
				}
				c, err := client.Dial(harness.Context(t), wire.URL())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				source, there, back := realTree(t), filepath.Join(harness.ShortDir(t), "there"), filepath.Join(harness.ShortDir(t), "back")
				for link, target := range map[string]string{"link": "README.md", "to-directory": "unicode", "nowhere": "none/../such"} {
					if err := os.Symlink(target, filepath.Join(source, link)); err != nil {
						t.Fatal(err)
					}
				}
				all := client.TransferOptions{Recursive: true, Checksum: true, Delete: true}

				first := snapshotTree(t, source, true)
				done, err := c.Push(harness.Context(t), source, there, all)
				if err != nil || done.Files != len(first.filesOf(true)) || done.Links != 3 {
					t.Errorf("uploading: %+v, %v", done, err)
				}
				first.expect(t, "uploaded", there, true)

				changeTree(t, source, rand.New(rand.NewPCG(seed, 1)))
				second := snapshotTree(t, source, true)
				if changed := len(second.differences(first)); changed < 50 {
					t.Errorf("only %d paths were changed", changed)
				}
				done, err = c.Push(harness.Context(t), source, there, all)
				if gone := removedFrom(source, first); err != nil || done.Skipped < 300 || done.Files < 30 || done.Deleted < gone || gone == 0 {
					t.Errorf("syncing: %+v, %v; %d files and directories are gone", done, err, gone)
				}
				second.expect(t, "synced", there, true)

				for round := uint64(2); round < 4 || wire.CutCount() < cuts; round++ {
					done, err = c.Pull(harness.Context(t), there, back, all)
					if err != nil {
						t.Errorf("downloading: %+v, %v", done, err)
					}
					snapshotTree(t, there, true).expect(t, "downloaded", back, true)
					changeTree(t, there, rand.New(rand.NewPCG(seed, round)))
				}
				t.Logf("%d cuts", wire.CutCount())
			})
		}
	}
}

// removedFrom counts the files and directories of a snapshot that a tree no longer has. A
// directory counts once with all below it.
func removedFrom(dir string, before treeSnapshot) (gone int) {
	for path := range before {
		parent, err := os.Lstat(filepath.Join(dir, filepath.Dir(path)))
		if _, lost := os.Lstat(filepath.Join(dir, path)); lost != nil && err == nil && parent.IsDir() {
			gone++
		}
	}
	return gone
}
