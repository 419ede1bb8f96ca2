package files

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// Every method with a path decodes its sandbox and passes it on.
func TestMethods_DecodeSandbox(t *testing.T) {
	const params = `{"path":"/p","sourcePath":"/p","destinationPath":"/q","recursive":true,"dataBase64":"","handleId":"h","watchId":1,
		"missing":["/p"],"options":{"maxDepth":1,"maxDirectories":1,"maxEntries":1},"sandboxPolicy":{"type":"readOnly"}}`
	pathless := []string{"fs/readBlock", "fs/writeBlock", "fs/close", "fs/unwatch"}
	for name, method := range Methods {
		if slices.Contains(pathless, name) {
			continue
		}
		read := method.New()
		if err := jsonrpc.DecodeParams([]byte(params), read); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		confined, ok := read.(confinedCall)
		if !ok {
			t.Errorf("%s has no sandbox", name)
			continue
		}
		if err := New(nil, nil, nil, nil).Check(read); err != nil || confined.confinement().policy == nil {
			t.Errorf("%s ignores its sandbox: %v", name, err)
		}
	}
}

// callWith decodes fs/getMetadata with a sandbox. A nil service means a new one.
func callWith(t *testing.T, s *Service, path, sandbox string) (*fsGetMetadataParams, *jsonrpc.Error) {
	t.Helper()
	if s == nil {
		s = New(nil, nil, nil, nil)
	}
	p := new(fsGetMetadataParams)
	if err := jsonrpc.DecodeParams([]byte(`{"path":"`+path+`",`+sandbox+`}`), p); err != nil {
		t.Fatal(err)
	}
	return p, s.Check(p)
}

func readSandbox(path string) string {
	return fmt.Sprintf(`"sandbox":{"permissions":{"file_system":{"read":[%q]}},"windowsSandboxLevel":"disabled"}`, path)
}

// A cached policy equals a freshly decoded one, in any order of calls and for all
// forms of paths.
func TestSandboxCache_DecodesSamePolicy(t *testing.T) {
	s := New(nil, nil, nil, nil)
	sandboxes := []string{`"sandboxPolicy":{"type":"readOnly"}`, `"sandboxPolicy":{"type":"dangerFullAccess"}`, `"sandbox":{"permissions":7}`,
		`"sandbox":{"windowsSandboxLevel":"disabled","permissions":{"type":"managed","file_system":{"type":"unrestricted"},"network":"restricted"}}`}
	for i := range 2 * maxCachedSandboxes {
		sandboxes = append(sandboxes, readSandbox(fmt.Sprint("/", i)))
	}
	for i := range sandboxes {
		for j := max(0, i-maxCachedSandboxes); j <= i; j++ {
			for _, path := range []string{"/p", "file:///p", "/p"} {
				want, refused := callWith(t, nil, path, sandboxes[j])
				got, isRefused := callWith(t, s, path, sandboxes[j])
				if (isRefused == nil) != (refused == nil) || got.cwd != want.cwd || !proto.Equal(got.policy, want.policy) {
					t.Errorf("%s with %s means %v in %q, want %v in %q", path, sandboxes[j], got.policy, got.cwd, want.policy, want.cwd)
				}
			}
		}
	}
	if len(s.sandboxes) > maxCachedSandboxes {
		t.Errorf("%d sandboxes are cached", len(s.sandboxes))
	}
}

func TestSandboxCache_Hit(t *testing.T) {
	s := New(nil, nil, nil, nil)
	read := func(members string) *execwirev1.SandboxPolicy {
		t.Helper()
		p, err := callWith(t, s, "/p", members)
		if err != nil {
			t.Fatal(err)
		}
		return p.policy
	}
	if first := read(readSandbox("/a")); first == nil || read(readSandbox("/a")) != first {
		t.Error("the sandbox is decoded again")
	}
	large := readSandbox("/" + strings.Repeat("a", maxCachedSandboxBytes))
	if first := read(large); first == nil || read(large) == first || len(s.sandboxes) != 1 {
		t.Error("a large sandbox is cached")
	}
	read(`"sandbox":null`)
	if _, err := callWith(t, s, "/p", `"sandbox":{"permissions":7}`); err == nil || len(s.sandboxes) != 1 {
		t.Error("a malformed or absent sandbox is accepted or cached")
	}
}
