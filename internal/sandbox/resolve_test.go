package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// expectAccess checks the access of a plan to paths, given as "access path".
func expectAccess(t *testing.T, plan *Plan, dir string, want ...string) {
	t.Helper()
	for _, w := range want {
		access, path, _ := strings.Cut(w, " ")
		if got := plan.Access(filepath.Join(dir, path)); got.String() != access {
			t.Errorf("%s: %v, want %s", path, got, access)
		}
	}
}

func TestResolve(t *testing.T) {
	root := Entry{Special: SpecialRoot, Access: AccessRead}
	for _, test := range []struct {
		name    string
		files   []string
		entries []Entry // paths are below the directory
		roots   []string
		tmpdir  string
		want    []string
	}{
		{name: "nothing", want: []string{"none /", "none x"}},
		{name: "most specific wins", files: []string{"a/b/c/"},
			entries: []Entry{{Path: "a", Access: AccessWrite}, {Path: "a/b", Access: AccessNone}, {Path: "a/b/c", Access: AccessRead}},
			want:    []string{"none ", "write a", "write a/x", "none a/b", "none a/b/x", "read a/b/c", "read a/b/c/d/e"}},
		{name: "of equals none wins", files: []string{"a/"},
			entries: []Entry{{Path: "a", Access: AccessWrite}, {Path: "a/.", Access: AccessNone}, {Path: "a", Access: AccessRead}},
			want:    []string{"none a"}},
		{name: "write wins over read", files: []string{"a/"},
			entries: []Entry{{Path: "a", Access: AccessWrite}, {Path: "a", Access: AccessRead}}, want: []string{"write a"}},
		{name: "a name is no prefix", files: []string{"a/", "ab/"}, entries: []Entry{{Path: "a", Access: AccessWrite}}, want: []string{"none ab"}},
		{name: "links lead elsewhere", files: []string{"real/", "link -> real", "x/in -> $DIR/real"},
			entries: []Entry{{Path: "link/sub", Access: AccessRead, SkipMissing: true}, {Path: "x/in", Access: AccessRead}},
			want:    []string{"read real", "none link", "none x"}},
		{name: "protected names", files: []string{"w/.git/", "w/.agents/", "w/.codex/", "w/sub/.git/"},
			entries: []Entry{root, {Path: "w", Access: AccessWrite}},
			want:    []string{"write w", "read w/.git/hooks", "read w/.agents", "read w/.codex", "write w/sub/.git", "write w/.gitignore"}},
		{name: "protected names that an entry names", files: []string{"w/.git/hooks/", "w/.codex/"},
			entries: []Entry{{Path: "w", Access: AccessWrite}, {Path: "w/.git", Access: AccessWrite}, {Path: "w/.git/hooks", Access: AccessRead}, {Path: "w/.codex", Access: AccessNone}},
			want:    []string{"write w/.git", "read w/.git/hooks", "none w/.codex"}},
		{name: "protected names that are missing", files: []string{"w/", "v/"}, roots: []string{"w"},
			entries: []Entry{root, {Special: SpecialProjectRoots, Access: AccessWrite}, {Path: "v", Access: AccessWrite}},
			want:    []string{"write w/x", "read w/.git", "read w/.agents/x", "read w/.codex", "write v/.git"}},
		{name: "gitdir file", files: []string{"w/.git = gitdir: ../v/git/worktrees/w\n", "v/git/worktrees/w/"},
			entries: []Entry{{Path: "w", Access: AccessWrite}, {Path: "v", Access: AccessWrite}},
			want:    []string{"read w/.git", "read v/git/worktrees/w/HEAD", "write v/git/config"}},
		{name: "gitdir file that points nowhere writable", files: []string{"w/.git = gitdir: $DIR/v\n", "v/"},
			entries: []Entry{{Path: "w", Access: AccessWrite}}, want: []string{"read w/.git", "none v"}},
		{name: "sub-path of project roots", files: []string{"w/a/", "v/a/"}, roots: []string{"w", "v"},
			entries: []Entry{{Special: SpecialProjectRoots, SubPath: "a", Access: AccessRead}},
			want:    []string{"none w", "read w/a", "read v/a"}},
		{name: "tmpdir", files: []string{"tmp/"}, tmpdir: "tmp", entries: []Entry{{Special: SpecialTmpdir, Access: AccessWrite}}, want: []string{"write tmp/x"}},
		{name: "no tmpdir", entries: []Entry{{Special: SpecialTmpdir, Access: AccessWrite}}, want: []string{"none "}},
		{name: "missing", files: []string{"w/"},
			entries: []Entry{{Path: "w", Access: AccessWrite}, {Path: "w/a/b", Access: AccessNone}, {Path: "w/c", Access: AccessNone, SkipMissing: true}},
			want:    []string{"none w/a/b", "write w/c"}},
		{name: "globs", files: []string{"a.env = ", "b/c.env = ", "b/c/d.env = ", "b/e.txt = ", ".env = "},
			entries: []Entry{{Path: "", Access: AccessRead}, {Glob: "**/*.env", Access: AccessNone}},
			want:    []string{"none a.env", "none b/c.env", "none b/c/d.env", "none .env", "read b/e.txt"}},
		{name: "globs in one directory", files: []string{"a1 = ", "a2/b/", "b1 = "},
			entries: []Entry{{Path: "", Access: AccessRead}, {Glob: "a?", Access: AccessNone}},
			want:    []string{"none a1", "none a2/b", "read b1"}},
		{name: "globs deny what a link points to", files: []string{"x/secret = ", "w/a.env -> ../x/secret"},
			entries: []Entry{{Path: "", Access: AccessRead}, {Path: "w", Access: AccessWrite}, {Glob: "w/*.env", Access: AccessNone}},
			want:    []string{"none x/secret", "write w/b"}},
		{name: "a glob that matches nothing", entries: []Entry{{Glob: "x/*", Access: AccessNone}}, want: []string{"none "}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := build(t, test.files...)
			policy := Policy{Entries: slices.Clone(test.entries)}
			for i, e := range policy.Entries {
				if e.Glob != "" {
					policy.Entries[i].Glob = dir + "/" + e.Glob
				} else if e.Special == 0 {
					policy.Entries[i].Path = dir + "/" + e.Path
				}
			}
			for _, r := range test.roots {
				policy.WorkspaceRoots = append(policy.WorkspaceRoots, filepath.Join(dir, r))
			}
			around := ResolveOptions{}
			if test.tmpdir != "" {
				around.TmpDir = filepath.Join(dir, test.tmpdir)
			}
			plan, err := policy.Resolve(t.Context(), around)
			if err != nil {
				t.Fatal(err)
			}
			expectAccess(t, plan, dir, test.want...)
		})
	}
}

func TestResolve_Minimal(t *testing.T) {
	plan := resolve(t, Policy{Entries: []Entry{{Special: SpecialMinimal, Access: AccessRead}}})
	expectAccess(t, plan, "/", "read usr/bin/true", "read etc/passwd", "none home", "none var", "none ")
}

func TestResolve_Unrestricted(t *testing.T) {
	plan := resolve(t, Policy{Unrestricted: true})
	expectAccess(t, plan, "/", "write ", "write x/.git")
	if !plan.Confines() {
		t.Error("the network is restricted, and nothing confines it")
	}
	if resolve(t, Policy{Unrestricted: true, Network: NetworkEnabled}).Confines() {
		t.Error("there is nothing to confine")
	}
}

func TestNarrow_GrantsWhatBothGrant(t *testing.T) {
	free := resolve(t, Policy{Unrestricted: true, Network: NetworkEnabled})
	readOnly := resolve(t, Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}}})
	for _, plan := range []*Plan{free.Narrow(readOnly), readOnly.Narrow(free), readOnly.Narrow(readOnly)} {
		if grantsOf(plan) != grantsOf(readOnly) {
			t.Errorf("got %s, want %s", grantsOf(plan), grantsOf(readOnly))
		}
	}
	if plan := free.Narrow(free); grantsOf(plan) != grantsOf(free) || plan.Confines() {
		t.Errorf("got %s", grantsOf(plan))
	}
}

func TestResolve_InvalidPolicy_Fails(t *testing.T) {
	dir := build(t, "w/link -> ../secret", "secret/", "w/sub/", "file = x", "g/.git -> ../secret")
	write := Entry{Path: dir + "/w", Access: AccessWrite}
	one := func(e Entry) Policy { return Policy{Entries: []Entry{e}} }
	for name, test := range map[string]struct {
		policy Policy
		kind   Kind
		member string
	}{
		"no place":                {one(Entry{Access: AccessRead}), InvalidPolicy, "entries[0]"},
		"two places":              {one(Entry{Path: "/a", Special: SpecialRoot, Access: AccessRead}), InvalidPolicy, "entries[0]"},
		"no access":               {one(Entry{Path: "/a"}), InvalidPolicy, "entries[0].access"},
		"unknown access":          {one(Entry{Path: "/a", Access: 9}), InvalidPolicy, "entries[0].access"},
		"unknown place":           {one(Entry{Special: 9, Access: AccessRead}), InvalidPolicy, "entries[0].special"},
		"relative path":           {one(Entry{Path: "a", Access: AccessRead}), InvalidPolicy, "entries[0].path"},
		"NUL":                     {one(Entry{Path: "/a\x00", Access: AccessRead}), InvalidPolicy, "entries[0].path"},
		"glob that grants":        {one(Entry{Glob: "/a/*", Access: AccessRead}), InvalidPolicy, "entries[0].access"},
		"relative glob":           {one(Entry{Glob: "*", Access: AccessNone}), InvalidPolicy, "entries[0].glob"},
		"malformed glob":          {one(Entry{Glob: "/[", Access: AccessNone}), InvalidPolicy, "entries[0].glob"},
		"dots in a glob":          {one(Entry{Glob: "/a/../*", Access: AccessNone}), InvalidPolicy, "entries[0].glob"},
		"sub-path of root":        {one(Entry{Special: SpecialRoot, SubPath: "a", Access: AccessRead}), InvalidPolicy, "entries[0].sub_path"},
		"sub-path out":            {one(Entry{Special: SpecialProjectRoots, SubPath: "../a", Access: AccessRead}), InvalidPolicy, "entries[0].sub_path"},
		"relative workspace":      {Policy{WorkspaceRoots: []string{"a"}}, InvalidPolicy, "workspace_roots[0]"},
		"depth":                   {Policy{GlobDepth: MaxGlobDepth + 1}, InvalidPolicy, "glob_scan_max_depth"},
		"network":                 {Policy{Network: 9}, InvalidPolicy, "network"},
		"entries of unrestricted": {Policy{Unrestricted: true, Entries: []Entry{write}}, InvalidPolicy, "entries"},
		"below a file":            {one(Entry{Path: dir + "/file/x", Access: AccessRead}), InvalidPolicy, "entries[0].path"},
		"link that can be replaced, denied": {
			Policy{Entries: []Entry{write, {Path: dir + "/w/link", Access: AccessNone}}}, UnsafeLink, "entries[1].path"},
		"link that can be replaced, granted": {
			Policy{Entries: []Entry{write, {Path: dir + "/w/link", Access: AccessWrite}}}, UnsafeLink, "entries[1].path"},
		"protected link": {one(Entry{Path: dir + "/g", Access: AccessWrite}), UnsafeLink, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := test.policy.Resolve(t.Context(), ResolveOptions{})
			var typed *Error
			if !errors.As(err, &typed) || typed.Kind != test.kind || typed.Member != test.member {
				t.Errorf("got %v, want %v of %q", err, test.kind, test.member)
			}
		})
	}
}

// A directory that may not be searched is an error, not a missing one.
func TestResolve_UnsearchableDirectory_Fails(t *testing.T) {
	dir := build(t, "closed/place/")
	for path, at := range map[string]string{dir + "/closed/place": dir + "/closed/place", dir + "/closed": dir + "/closed/.git"} {
		policy := Policy{Entries: []Entry{{Path: path, Access: AccessWrite}}}
		if err := os.Chmod(dir+"/closed", 0o700); err != nil {
			t.Fatal(err)
		}
		letPass(t, dir)
		err := onNewThread(func() error {
			if err := unix.Setfsuid(nobody); err != nil { // of this thread
				return err
			}
			_, err := policy.Resolve(t.Context(), ResolveOptions{})
			return err
		})
		var typed *Error
		if !errors.As(err, &typed) || typed.Kind != Failed || typed.Path != at || !strings.Contains(err.Error(), "let the server's user search") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestResolve_Globs_AreBounded(t *testing.T) {
	var files []string
	for i := range MaxPaths + 1 {
		files = append(files, "many/"+strings.Repeat("x", 1+i%200)+string(rune('a'+i/200))+" = ")
	}
	files = append(files, "1/2/3/4/f = ")
	dir := build(t, files...)
	policy := Policy{Entries: []Entry{{Glob: dir + "/many/*", Access: AccessNone}}}
	if _, err := policy.Resolve(t.Context(), ResolveOptions{}); KindOf(err) != TooManyPaths {
		t.Errorf("%d matches: %v", MaxPaths+1, err)
	}
	deep := Policy{GlobDepth: 3, Entries: []Entry{{Path: dir, Access: AccessRead}, {Glob: dir + "/**/f", Access: AccessNone}}}
	expectAccess(t, resolve(t, deep), dir, "read 1/2/3/4/f")
	deep.GlobDepth = 4
	expectAccess(t, resolve(t, deep), dir, "none 1/2/3/4/f")
}

func TestResolve_WorkspaceRoots_AreBounded(t *testing.T) {
	policy := Policy{WorkspaceRoots: slices.Repeat([]string{"/w"}, MaxPaths+1)}
	if _, err := policy.Resolve(t.Context(), ResolveOptions{}); KindOf(err) != TooManyPaths {
		t.Errorf("%d roots: %v", MaxPaths+1, err)
	}
}

func TestPlanKey_DiffersBetweenPlans(t *testing.T) {
	dir := build(t, "a/", "b/")
	entry := func(name string, access Access) Policy {
		return Policy{Entries: []Entry{{Path: dir + "/" + name, Access: access}}}
	}
	keys := map[string]bool{}
	for _, policy := range []Policy{entry("a", AccessRead), entry("b", AccessRead), entry("a", AccessWrite), {}, {Network: NetworkEnabled}, {Unrestricted: true}} {
		keys[grantsOf(resolve(t, policy))] = true
	}
	if len(keys) != 6 {
		t.Errorf("6 plans have %d keys", len(keys))
	}
	if grantsOf(resolve(t, entry("a", AccessRead))) != grantsOf(resolve(t, entry("./a", AccessRead))) {
		t.Error("the same plan has two keys")
	}
}

// grantsOf is equal for plans that grant the same access to the same paths.
func grantsOf(plan *Plan) string {
	return plan.key(func(r *rule) (lost int) {
		r.id = fileID{}
		return 0
	})
}
