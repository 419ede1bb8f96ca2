package owners

import (
	"context"
	"io/fs"
	"testing"
)

func TestRead(t *testing.T) {
	files := map[string]string{"/etc/passwd": "root:x:0:0::/:/bin/sh\ntoor:x:0:0::/:\n# x\n:x:7:\nb:x:1000:5::/:"}
	names := Read(t.Context(), func(_ context.Context, path string) ([]byte, error) {
		if text, ok := files[path]; ok {
			return []byte(text), nil
		}
		return nil, fs.ErrNotExist
	})
	for id, want := range map[uint32]string{0: "root", 1000: "b", 7: "7", 1: "1"} {
		if got := names.User(id); got != want {
			t.Errorf("user %d is %q, want %q", id, got, want)
		}
	}
	if got := names.Group(0); got != "0" {
		t.Errorf("group 0 is %q without a file", got)
	}
}
