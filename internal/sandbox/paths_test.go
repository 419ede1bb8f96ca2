package sandbox

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestResolveLinks_OfWholePath_EqualsThatOfParts compares the function for paths
// without links with the one for each component.
func TestResolveLinks_OfWholePath_EqualsThatOfParts(t *testing.T) {
	dir := build(t, "d/e/f = x", "full/.git/x = ", "d/in -> e", "d/out -> ../full", "d/loop -> loop", "d/gone -> nowhere", "w/.git/")
	if err := os.Chmod(dir+"/w/.git", os.ModeSticky|0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir+"/full/.git", os.ModeSticky|0o755); err != nil {
		t.Fatal(err)
	}
	paths := []string{"", "d", "d/e", "d/e/f", "d/e/f/g", "d/e/none", "d/none", "d/none/below", "d/in", "d/in/f", "d/out/.git", "d/out/.git/x",
		"d/loop", "d/gone", "full/.git", "full/.git/x", "w/.git", "w/.git/hooks", "w/.agents", "w"}
	for _, path := range paths {
		want, _, wantErr := resolveVisible(nil, dir+"/./"+path)
		got, err := resolveLinks(nil, strings.TrimRight(dir+"/"+path, "/"))
		if !reflect.DeepEqual(got, want) || (err == nil) != (wantErr == nil) {
			t.Errorf("%q leads to %+v, %v, want %+v, %v", path, got, err, want, wantErr)
		}
	}
	want, _, _ := resolveVisible(nil, "/./")
	if got, err := resolveLinks(nil, "/"); !reflect.DeepEqual(got, want) || err != nil || got.id == (fileID{}) {
		t.Errorf("/ leads to %+v, %v, want %+v", got, err, want)
	}
}
