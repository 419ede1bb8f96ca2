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

// grants returns the access that a policy grants to a path, by the rules of the
// contract: the most specific entry wins; of equal ones none, then write.
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

// placesOf returns the paths of an entry that contain a path.
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

// reachesNetwork reports whether a policy permits network access.
func reachesNetwork(policy *execwirev1.SandboxPolicy) bool {
	managed := policy.GetManaged()
	return managed == nil || managed.GetNetwork() == execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED
}

var samplePaths = []string{
	"/", "/c", "/c/x", "/d", "/d/x", "/d/.git", "/d/.git/x", "/d/a/b.env", "/d*/b.env", "/w", "/w/x", "/w/b.env", "/x", "/r", "/s/x",
	"/usr/bin", "/tmp", "/tmp/x", "/tmpdir/x", "/b", "/b c", "/b c/x", "/etc",
}

// corrupt lists corruptions of a JSON value: members with other names, and values
// of another type at any place in it.
func corrupt(value any) (corrupted []any) {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			if anyValue[name] {
				continue
			}
			renamed := maps.Clone(v)
			delete(renamed, name)
			renamed[name+"X"] = member
			corrupted = append(corrupted, renamed)
			for _, other := range corrupt(member) {
				changed := maps.Clone(v)
				changed[name] = other
				corrupted = append(corrupted, changed)
			}
		}
	case []any:
		for i, element := range v {
			for _, other := range corrupt(element) {
				changed := slices.Clone(v)
				changed[i] = other
				corrupted = append(corrupted, changed)
			}
		}
	}
	return append(corrupted, nil, 5, -1.5, "junk", []any{}, []any{"junk"}, map[string]any{}, map[string]any{"junk": true})
}

// anyValue are members that accept any value of their type, or
// null: another value is another valid policy.
var anyValue = map[string]bool{"pattern": true, "subpath": true, "glob_scan_max_depth": true}

// A corrupted policy fails, or grants no more than the intact one.
func TestSandbox_CorruptedPolicy_GrantsNoMore(t *testing.T) {
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
			for _, other := range corrupt(of[name]) {
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
	corrupted, err := startWith("/c", object[1:len(object)-1])
	if err != nil {
		return
	}
	if reachesNetwork(corrupted.policy) && !reachesNetwork(policy) {
		t.Errorf("%s grants network access", object)
	}
	for _, at := range samplePaths {
		if more, granted := grants(corrupted.policy, at), grants(policy, at); more > granted {
			t.Errorf("%s grants %v at %s, want at most %v", object, more, at, granted)
		}
	}
}

// FuzzSandbox: a policy that confines nothing, or grants writing or the network,
// states that.
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
		requested := map[string]any{"sandbox": given["sandbox"], "sandboxPolicy": given["sandboxPolicy"]}
		if !param.IsGiven(given["sandbox"]) && !param.IsGiven(given["sandboxPolicy"]) {
			return
		}
		encoded := unescaped(t, requested)
		start, refused := startWith("/c", encoded[1:len(encoded)-1])
		if refused != nil {
			checkRefusal(t, "process/start", []byte(encoded), refused)
			return
		}
		checkStated(t, encoded, start.policy)
	})
}

// unescaped encodes JSON without HTML escapes.
func unescaped(t *testing.T, value any) string {
	t.Helper()
	rewritten, _ := rewrite(t, []byte(toJSON(value)))
	return string(rewritten)
}

func checkStated(t *testing.T, encoded string, policy *execwirev1.SandboxPolicy) {
	t.Helper()
	says := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(encoded, word) })
	}
	managed := policy.GetManaged()
	switch {
	case managed == nil && !says("disabled", "external", "xternalSandbox", "unrestricted", "full-access", "FullAccess"):
		t.Errorf("%s is unconfined", encoded)
	case managed == nil:
		return
	case managed.GetFileSystem().GetUnrestricted() != nil && !says("unrestricted"):
		t.Errorf("%s does not restrict files", encoded)
	case reachesNetwork(policy) && !says("enabled", "true", "danger", "Danger", "xternal"):
		t.Errorf("%s permits network access", encoded)
	}
	for _, e := range managed.GetFileSystem().GetRestricted().GetEntries() {
		if e.GetAccess() == execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE && !says("write", "Write") {
			t.Errorf("%s permits writing", encoded)
		}
	}
}
