//go:build linux

package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

// A group is excluded while it exists outside of the pool, and neither after it was removed nor below
// the pool.
func TestPool_Excludes(t *testing.T) {
	p := openPool(t)
	defer p.Close()
	g := p.Get()
	defer g.Release()
	if id := inode(g.dir()); p.Excludes(id) || !g.Has(id) {
		t.Errorf("a group of the pool: excluded %v, found %v", p.Excludes(id), g.Has(id))
	}
	dir := filepath.Join(parentOfTest(t), "outside")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	id := inode(dir)
	for _, when := range []string{"the first time", "again"} {
		if !p.Excludes(id) || g.Has(id) {
			t.Errorf("a group outside, %s: excluded %v, found %v", when, p.Excludes(id), g.Has(id))
		}
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if p.Excludes(id) {
		t.Error("a group that was removed is excluded")
	}
	if (*Pool)(nil).Excludes(id) || p.Excludes(rootGroup) {
		t.Error("without a pool, or for the root, all are excluded")
	}
}
