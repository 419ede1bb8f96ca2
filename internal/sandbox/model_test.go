package sandbox

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/execwire/execwire/internal/testproc"
)

func init() { testproc.Register("sandbox-access", tellAccess) }

// model returns the access to a path, without links or protected names: that of the
// entry with the longest path at or above it; of equal ones none wins over write, and
// write over read.
func model(entries []Entry, path string) Access {
	best, access := -1, AccessNone
	rank := map[Access]int{AccessRead: 0, AccessWrite: 1, AccessNone: 2}
	for _, e := range entries {
		at := filepath.Clean(e.Path)
		if e.Special == SpecialRoot {
			at = "/"
		}
		if path != at && !strings.HasPrefix(path, strings.TrimSuffix(at, "/")+"/") {
			continue
		}
		if len(at) > best || len(at) == best && rank[e.Access] > rank[access] {
			best, access = len(at), e.Access
		}
	}
	return access
}

// names of the directories of the trees that the model is compared on.
var names = []string{"a", "b", "ab"}

// tree lists the directories of a full tree.
func tree(dir string, depth int) []string {
	all := []string{dir}
	if depth > 0 {
		for _, name := range names {
			all = append(all, tree(filepath.Join(dir, name), depth-1)...)
		}
	}
	return all
}

func TestPlan_EqualsModel(t *testing.T) {
	dir := build(t)
	places := tree(dir, 3)
	for _, place := range places {
		if err := os.MkdirAll(place, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	resolved := func(t *rapid.T, policy Policy) *Plan {
		plan, err := policy.Resolve(t.Context(), ResolveOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	entries := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Entry {
		return Entry{
			Path:   rapid.SampledFrom(append([]string{"/"}, places...)).Draw(t, "path") + rapid.SampledFrom([]string{"", "/", "/.", "/missing"}).Draw(t, "end"),
			Access: rapid.SampledFrom([]Access{AccessNone, AccessRead, AccessWrite}).Draw(t, "access"),
		}
	}), 0, 12)
	rapid.Check(t, func(t *rapid.T) {
		policy, floor := Policy{Entries: entries.Draw(t, "entries")}, Policy{Entries: entries.Draw(t, "floor")}
		plan := resolved(t, policy)
		narrow := plan.Narrow(resolved(t, floor))
		for _, place := range append(places, "/", "/usr", dir+"/missing", dir+"/a/missing") {
			if got, want := plan.Access(place), model(policy.Entries, place); got != want {
				t.Fatalf("%s: %v, want %v", place, got, want)
			}
			if got, want := narrow.Access(place), min(model(policy.Entries, place), model(floor.Entries, place)); got != want {
				t.Fatalf("%s, narrowed: %v, want %v", place, got, want)
			}
		}
	})
}

// tellAccess FILE... prints the access to each file as JSON.
func tellAccess(args []string) int {
	said := map[string]string{}
	for _, path := range args {
		access := AccessNone
		if file, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
			access = AccessWrite
			_ = file.Close()
		} else if _, err := os.ReadFile(path); err == nil {
			access = AccessRead
		}
		said[path] = access.String()
	}
	if json.NewEncoder(os.Stdout).Encode(said) != nil {
		return 1
	}
	return 0
}

// TestBackends_EnforceThePlan compares what a confined program can do with the plan.
func TestBackends_EnforceThePlan(t *testing.T) {
	const rounds = 40
	dir := build(t)
	places := tree(dir, 3)
	for _, place := range places {
		if err := os.MkdirAll(place, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(place, "file"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, backend := range []Backend{Bubblewrap, Landlock} {
		t.Run(backend.String(), func(t *testing.T) {
			sandboxes := probed(t, backend)
			random := rand.New(rand.NewPCG(1, uint64(backend)))
			enforced := 0
			for round := range rounds {
				policy := randomPolicy(t, random, places)
				plan := resolve(t, policy)
				if _, err := sandboxes.Confine(plan); err != nil {
					if !slices.ContainsFunc(plan.accessChanges(), func(s accessChange) bool { return s.access < s.parentAccess }) {
						t.Errorf("refused, with nothing that is less than what is around it: %v", err)
					}
					continue
				}
				enforced++
				compareAccess(t, sandboxes, plan, places, fmt.Sprintf("round %d: %v", round, policy.Entries))
			}
			if enforced < rounds/10 {
				t.Errorf("only %d plans were enforced", enforced)
			}
		})
	}
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error {
		if strings.Contains(path, "missing") {
			t.Errorf("%s was left behind", path)
		}
		return nil
	})
}

// randomPolicy returns entries for a tree, and those that the worker needs.
func randomPolicy(t *testing.T, random *rand.Rand, places []string) Policy {
	t.Helper()
	self := testproc.Argv("sandbox-access")[0]
	base := [][]Entry{
		{{Special: SpecialRoot, Access: AccessRead}},
		{{Special: SpecialMinimal, Access: AccessRead}, {Path: self, Access: AccessRead}},
	}
	policy := Policy{Entries: base[random.IntN(len(base))]}
	for range 1 + random.IntN(5) {
		e := Entry{Path: places[random.IntN(len(places))], Access: AccessNone + Access(random.IntN(3))}
		switch random.IntN(4) {
		case 0:
			e.Path += "/file"
		case 1:
			e.Path += "/missing"
		}
		policy.Entries = append(policy.Entries, e)
	}
	return policy
}

func compareAccess(t *testing.T, sandboxes *Sandboxes, plan *Plan, places []string, of string) {
	t.Helper()
	var files []string
	for _, place := range places {
		files = append(files, filepath.Join(place, "file"))
	}
	output := run(t, sandboxes, plan, "sandbox-access", files...)
	var said map[string]string
	if err := json.Unmarshal([]byte(output), &said); err != nil {
		t.Fatalf("%s: %v: %q", of, err, output)
	}
	for _, file := range files {
		if want := plan.Access(file).String(); said[file] != want {
			t.Errorf("%s\n%s: %s, want %s", of, file, said[file], want)
		}
	}
}
