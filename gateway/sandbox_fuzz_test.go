package gateway

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/execwire/execwire/gateway/param"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// grants is what a policy lets a program do with a path, by the rules of the
// contract: the most specific place wins; of equal ones none, then write.
func grants(policy *execwirev1.SandboxPolicy, at string) execwirev1.SandboxAccess {
	managed := policy.GetManaged()
	if managed == nil || managed.GetFileSystem().GetUnrestricted() != nil {
		return execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE
	}
	granted, length := execwirev1.SandboxAccess_SANDBOX_ACCESS_NONE, -1
	for _, e := range managed.GetFileSystem().GetRestricted().GetEntries() {
		for _, place := range placesOf(managed, e, at) {
			switch more := len(place) - length; {
			case more > 0:
				granted, length = e.GetAccess(), len(place)
			case more == 0 && granted != execwirev1.SandboxAccess_SANDBOX_ACCESS_NONE:
				granted = max(granted, e.GetAccess())
				if e.GetAccess() == execwirev1.SandboxAccess_SANDBOX_ACCESS_NONE {
					granted = e.GetAccess()
				}
			}
		}
	}
	return granted
}

// placesOf are the places of an entry that a path is in.
func placesOf(managed *execwirev1.ManagedSandbox, e *execwirev1.SandboxEntry, at string) (places []string) {
	all := []string{e.GetPath()}
	if special := e.GetSpecial(); special != nil {
		all = map[execwirev1.SpecialPathKind][]string{
			execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_ROOT:      {"/"},
			execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_MINIMAL:   {"/usr"},
			execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_TMPDIR:    {"/tmpdir"},
			execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_SLASH_TMP: {"/tmp"},
		}[special.GetKind()]
		if special.GetKind() == execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_PROJECT_ROOTS {
			for _, root := range managed.GetWorkspaceRoots() {
				all = append(all, path.Join(root, special.GetSubPath()))
			}
		}
	}
	for above := at; ; above = path.Dir(above) {
		if e.GetGlob() != "" && matches(strings.Split(e.GetGlob(), "/"), strings.Split(above, "/")) || slices.Contains(all, above) {
			places = append(places, above)
		}
		if above == "/" {
			return places
		}
	}
}

func matches(pattern, names []string) bool {
	switch {
	case len(pattern) == 0 || len(names) == 0:
		return len(pattern) == len(names)
	case pattern[0] == "**" && matches(pattern[1:], names):
		return true
	case pattern[0] == "**":
		return matches(pattern, names[1:]) || len(pattern) == 1 && len(names) == 1
	}
	is, err := path.Match(pattern[0], names[0])
	return err == nil && is && matches(pattern[1:], names[1:])
}

// reachesNetwork tells whether a policy lets a program reach the network.
func reachesNetwork(policy *execwirev1.SandboxPolicy) bool {
	managed := policy.GetManaged()
	return managed == nil || managed.GetNetwork() == execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED
}

var samplePaths = []string{
	"/", "/c", "/c/x", "/d", "/d/x", "/d/.git", "/d/.git/x", "/d/a/b.env", "/d*/b.env", "/w", "/w/x", "/w/b.env", "/x", "/r", "/s/x",
	"/usr/bin", "/tmp", "/tmp/x", "/tmpdir/x", "/b", "/b c", "/b c/x", "/etc",
}

// spoil lists what becomes of a value of JSON when something in it is something
// else: its members have other names, or anything in it is of another kind.
func spoil(value any) (spoiled []any) {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			if meansSomethingElse[name] {
				continue
			}
			renamed := maps.Clone(v)
			delete(renamed, name)
			renamed[name+"X"] = member
			spoiled = append(spoiled, renamed)
			for _, other := range spoil(member) {
				changed := maps.Clone(v)
				changed[name] = other
				spoiled = append(spoiled, changed)
			}
		}
	case []any:
		for i, element := range v {
			for _, other := range spoil(element) {
				changed := slices.Clone(v)
				changed[i] = other
				spoiled = append(spoiled, changed)
			}
		}
	}
	return append(spoiled, nil, 5, -1.5, "junk", []any{}, []any{"junk"}, map[string]any{}, map[string]any{"junk": true})
}

// meansSomethingElse are members that anything of their type may stand in, or that
// may be null: with another value it is another policy.
var meansSomethingElse = map[string]bool{"pattern": true, "subpath": true, "glob_scan_max_depth": true}

// Whatever is wrong in a policy, it is refused or grants no more than if it were
// right.
func TestSpoiledSandboxesGrantNoMore(t *testing.T) {
	policies := []string{"permissions", "sandboxPolicy", "fileSystemSandboxPolicy", "additionalPermissions"}
	for _, shape := range shapes {
		whole, err := startWith("/c", withLevel(shape.members))
		if err != nil {
			t.Fatal(err)
		}
		var members map[string]any
		if err := json.Unmarshal([]byte("{"+withLevel(shape.members)+"}"), &members); err != nil {
			t.Fatal(err)
		}
		var variants []map[string]any
		vary := func(of map[string]any, name string, put func(map[string]any) map[string]any) {
			for _, other := range spoil(of[name]) {
				changed := maps.Clone(of)
				if changed[name] = other; other != nil {
					variants = append(variants, put(changed))
				}
			}
		}
		if members["sandboxPolicy"] != nil {
			vary(members, "sandboxPolicy", func(m map[string]any) map[string]any { return m })
		}
		if sandbox, ok := members["sandbox"].(map[string]any); ok {
			for _, name := range policies {
				if sandbox[name] != nil {
					vary(sandbox, name, func(m map[string]any) map[string]any { return map[string]any{"sandbox": m} })
				}
			}
		}
		for _, variant := range variants {
			wantNoMore(t, whole.policy, toJSON(variant))
		}
	}
}

func wantNoMore(t *testing.T, policy *execwirev1.SandboxPolicy, object string) {
	t.Helper()
	spoiled, err := startWith("/c", object[1:len(object)-1])
	if err != nil {
		return
	}
	if reachesNetwork(spoiled.policy) && !reachesNetwork(policy) {
		t.Errorf("with %s the network is reached", object)
	}
	for _, at := range samplePaths {
		if more, granted := grants(spoiled.policy, at), grants(policy, at); more > granted {
			t.Errorf("with %s there is %v at %s, not %v", object, more, at, granted)
		}
	}
}

// FuzzSandbox gives calls sandboxes. What confines nothing says so, and what grants
// writing or the network says that.
func FuzzSandbox(f *testing.F) {
	for _, shape := range shapes {
		f.Add([]byte("{" + withLevel(shape.members) + "}"))
	}
	f.Fuzz(func(t *testing.T, members []byte) {
		m, err := jsonrpc.Parse(slices.Concat([]byte(`{"id":1,"method":"m","params":`), members, []byte("}")))
		if err != nil {
			return
		}
		var given map[string]json.RawMessage
		if json.Unmarshal(m.Params, &given) != nil || given == nil {
			return
		}
		asked := map[string]any{"sandbox": given["sandbox"], "sandboxPolicy": given["sandboxPolicy"]}
		if !param.IsGiven(given["sandbox"]) && !param.IsGiven(given["sandboxPolicy"]) {
			return
		}
		said := unescaped(t, asked)
		start, refused := startWith("/c", said[1:len(said)-1])
		if refused != nil {
			checkRefusal(t, "process/start", []byte(said), refused)
			return
		}
		checkSaid(t, said, start.policy)
	})
}

// unescaped is JSON in which letters stand for themselves.
func unescaped(t *testing.T, value any) string {
	t.Helper()
	rewritten, _ := rewrite(t, []byte(toJSON(value)))
	return string(rewritten)
}

func checkSaid(t *testing.T, said string, policy *execwirev1.SandboxPolicy) {
	t.Helper()
	says := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(said, word) })
	}
	managed := policy.GetManaged()
	switch {
	case managed == nil && !says("disabled", "external", "xternalSandbox", "unrestricted", "full-access", "FullAccess"):
		t.Errorf("%s confines nothing", said)
	case managed == nil:
		return
	case managed.GetFileSystem().GetUnrestricted() != nil && !says("unrestricted"):
		t.Errorf("%s restricts no files", said)
	case reachesNetwork(policy) && !says("enabled", "true", "danger", "Danger", "xternal"):
		t.Errorf("%s reaches the network", said)
	}
	for _, e := range managed.GetFileSystem().GetRestricted().GetEntries() {
		if e.GetAccess() == execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE && !says("write", "Write") {
			t.Errorf("%s lets write", said)
		}
	}
}
