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

// Every call that names a path has a sandbox, and hands it on.
func TestEveryCallOnFilesReadsItsSandbox(t *testing.T) {
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
		if err := New(nil, nil, 1, nil).Check(read); err != nil || confined.confinement().policy == nil {
			t.Errorf("%s ignores its sandbox: %v", name, err)
		}
	}
}

// callWith decodes fs/getMetadata with a sandbox, by a service or, without one, afresh.
func callWith(t *testing.T, s *Service, path, sandbox string) (*fsGetMetadataParams, *jsonrpc.Error) {
	t.Helper()
	if s == nil {
		s = New(nil, nil, 1, nil)
	}
	p := new(fsGetMetadataParams)
	if err := jsonrpc.DecodeParams([]byte(`{"path":"`+path+`",`+sandbox+`}`), p); err != nil {
		t.Fatal(err)
	}
	return p, s.Check(p)
}

func reading(path string) string {
	return fmt.Sprintf(`"sandbox":{"permissions":{"file_system":{"read":[%q]}},"windowsSandboxLevel":"disabled"}`, path)
}

// What was seen of a sandbox means what it would have meant had it not been, in
// whatever order it comes, and whichever form the paths of the call have.
func TestSeenSandboxesMeanTheSame(t *testing.T) {
	s := New(nil, nil, 1, nil)
	sandboxes := []string{`"sandboxPolicy":{"type":"readOnly"}`, `"sandboxPolicy":{"type":"dangerFullAccess"}`, `"sandbox":{"permissions":7}`,
		`"sandbox":{"windowsSandboxLevel":"disabled","permissions":{"type":"managed","file_system":{"type":"unrestricted"},"network":"restricted"}}`}
	for i := range 2 * maxCachedSandboxes {
		sandboxes = append(sandboxes, reading(fmt.Sprint("/", i)))
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
		t.Errorf("%d are remembered", len(s.sandboxes))
	}
}

func TestSandboxIsReadOnce(t *testing.T) {
	s := New(nil, nil, 1, nil)
	read := func(members string) *execwirev1.SandboxPolicy {
		t.Helper()
		p, err := callWith(t, s, "/p", members)
		if err != nil {
			t.Fatal(err)
		}
		return p.policy
	}
	if first := read(reading("/a")); first == nil || read(reading("/a")) != first {
		t.Error("it is read again")
	}
	large := reading("/" + strings.Repeat("a", maxCachedSandboxBytes))
	if first := read(large); first == nil || read(large) == first || len(s.sandboxes) != 1 {
		t.Error("a large one is remembered")
	}
	read(`"sandbox":null`)
	if _, err := callWith(t, s, "/p", `"sandbox":{"permissions":7}`); err == nil || len(s.sandboxes) != 1 {
		t.Error("what is malformed or absent is taken")
	}
}
