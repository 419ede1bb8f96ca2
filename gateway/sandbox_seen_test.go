package gateway

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
)

// What was seen of a sandbox means what it would have meant had it not been, in
// whatever order it comes, and whichever form the paths of the call have.
func TestSeenSandboxesMeanTheSame(t *testing.T) {
	var seen seenSandboxes
	decode := func(path, members string, seen *seenSandboxes) (confinement, bool) {
		read, err := methods["fs/getMetadata"].decode([]byte(`{"path":"`+path+`",`+withLevel(members)+`}`), seen)
		if err != nil {
			return confinement{}, false
		}
		return read.(*fsGetMetadataParams).confinement, true
	}
	for _, repeated := range []int{1, 2} {
		for i := range shapes {
			for j := max(0, i-maxSeenSandboxes); j <= i; j++ {
				for _, path := range []string{"/p", "file:///p"} {
					for range repeated {
						want, accepted := decode(path, shapes[j].members, nil)
						got, isAccepted := decode(path, shapes[j].members, &seen)
						if isAccepted != accepted || got.cwd != want.cwd || !proto.Equal(got.policy, want.policy) {
							t.Errorf("%s with %s means %v in %q, want %v in %q", path, shapes[j].members, got.policy, got.cwd, want.policy, want.cwd)
						}
					}
				}
			}
		}
	}
	if len(seen.all) != maxSeenSandboxes {
		t.Errorf("%d are remembered", len(seen.all))
	}
}

func TestSandboxIsReadOnce(t *testing.T) {
	var seen seenSandboxes
	read := func(members string) confinement {
		t.Helper()
		call, err := methods["fs/readFile"].decode([]byte(`{"path":"/p",`+members+`}`), &seen)
		if err != nil {
			t.Fatal(err)
		}
		return call.(*fsReadFileParams).confinement
	}
	named := func(path string) string {
		return fmt.Sprintf(`"sandbox":{"permissions":{"file_system":{"read":[%q]}},"windowsSandboxLevel":"disabled"}`, path)
	}
	if first := read(named("/a")); first.policy == nil || read(named("/a")).policy != first.policy {
		t.Error("it is read again")
	}
	large := named("/" + strings.Repeat("a", maxSeenBytes))
	if first := read(large); first.policy == nil || read(large).policy == first.policy || len(seen.all) != 1 {
		t.Error("a large one is remembered")
	}
	for i := range 2 * maxSeenSandboxes {
		read(named(fmt.Sprint("/", i)))
	}
	if len(seen.all) != maxSeenSandboxes {
		t.Errorf("%d are remembered", len(seen.all))
	}
	read(`"sandbox":null`)
	if _, err := methods["fs/readFile"].decode([]byte(`{"path":"/p","sandbox":{"permissions":7}}`), &seen); err == nil {
		t.Error("what is malformed is taken")
	}
	for _, s := range seen.all {
		if s.sandbox == "null" || strings.Contains(s.sandbox, "7}") {
			t.Errorf("%s is remembered", s.sandbox)
		}
	}
}
