package sandbox

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestShortWaysLeadToTheSame follows paths with one survey, in several orders, and part by part, which a "." in the path
// has it do.
func TestShortWaysLeadToTheSame(t *testing.T) {
	dir := build(t, "d/e/f = x", "full/.git/x = ", "d/in -> e", "d/out -> ../full", "d/loop -> loop", "d/gone -> nowhere", "w/.git/")
	if err := os.Chmod(dir+"/w/.git", os.ModeSticky|0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir+"/full/.git", os.ModeSticky|0o755); err != nil {
		t.Fatal(err)
	}
	paths := []string{"", "d", "d/e", "d/e/f", "d/e/f/g", "d/e/none", "d/none", "d/none/below", "d/in", "d/in/f", "d/out/.git", "d/out/.git/x",
		"d/loop", "d/gone", "full/.git", "full/.git/x", "w/.git", "w/.git/hooks", "w/.agents", "w"}
	for _, forward := range []bool{true, false} {
		var s survey
		for i := range paths {
			path := paths[i]
			if !forward {
				path = paths[len(paths)-1-i]
			}
			want, wantErr := follow(dir + "/./" + path)
			got, err := s.follow(strings.TrimRight(dir+"/"+path, "/"))
			if !reflect.DeepEqual(got, want) || (err == nil) != (wantErr == nil) {
				t.Errorf("%q leads to %+v, %v, want %+v, %v", path, got, err, want, wantErr)
			}
		}
		s.close()
	}
	want, _ := follow("/./")
	if got, err := follow("/"); !reflect.DeepEqual(got, want) || err != nil || got.is == (identity{}) {
		t.Errorf("/ leads to %+v, %v, want %+v", got, err, want)
	}
}

// TestSurveysOpenFewFiles surveys more than one may hold.
func TestSurveysOpenFewFiles(t *testing.T) {
	var files []string
	for name := range strings.SplitSeq("a b c d e f g h i j k l m n o p q r s t u v w x y z", " ") {
		files = append(files, name+"/below/")
	}
	dir := build(t, files...)
	var s survey
	defer s.close()
	for _, name := range files {
		if w, err := s.follow(dir + "/" + strings.TrimRight(name, "/")); err != nil || w.missing {
			t.Errorf("%s leads to %+v, %v", name, w, err)
		}
	}
	if len(s.held) != maxHeld {
		t.Errorf("%d are held", len(s.held))
	}
}
