package fsops

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// However few names are sorted at once, all come, once and in order.
func TestLargeDirectoriesAreSortedInParts(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for i := range 500 {
		name := fmt.Sprint(i * 7919 % 500)
		if err := os.WriteFile(dir+"/"+name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		want = append(want, name)
	}
	slices.Sort(want)
	fd, err := openPath(dir, asDirectory, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.release()
	for _, most := range []int{1, 7, 250, 499, 500, 501} {
		list, got := newListing(fd, levelBytes), []string(nil)
		for after, more := "", true; more; {
			var entries []Entry
			if entries, more, err = list.sorted(t.Context(), after, most); err != nil || len(entries) > most {
				t.Fatalf("%d entries: %v", len(entries), err)
			}
			for _, e := range entries {
				got, after = append(got, e.Name), e.Name
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d at once: %d names, want %d", most, len(got), len(want))
		}
	}
}

// What openat2 refuses is refused without it too.
func TestNoLinkIsFollowedBeneath(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{os.MkdirAll(dir+"/d/e", 0o755), os.WriteFile(dir+"/d/e/f", nil, 0o600), os.Symlink("d", dir+"/ld"),
		os.Symlink("f", dir+"/d/e/lf"), os.Symlink("/", dir+"/root")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	top, err := openPath(dir, asParent, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer top.release()
	for _, tt := range []struct {
		path  string
		flags int
		want  error
	}{
		{"d", asDirectory, nil}, {"d/e", asParent, nil}, {"d/e/f", always | unix.O_RDONLY, nil},
		{"ld", asDirectory, unix.ELOOP}, {"ld", asParent, unix.ELOOP}, {"ld/e", asDirectory, unix.ELOOP}, {"ld/e/f", always | unix.O_RDONLY, unix.ELOOP},
		{"d/e/lf", always | unix.O_RDONLY, unix.ELOOP}, {"root/etc", asDirectory, unix.ELOOP},
		{"d/none", asDirectory, unix.ENOENT}, {"d/e/f/x", asDirectory, unix.ENOTDIR}, {"d/e/f", asDirectory, unix.ENOTDIR},
	} {
		for name, open := range map[string]func(descriptor, string, int, uint32) (descriptor, error){
			"openBeneath": openBeneath, "openByNames": openByNames,
		} {
			fd, err := open(top, tt.path, tt.flags, 0)
			if err != tt.want {
				t.Errorf("%s of %s with %#x: %v, want %v", name, tt.path, tt.flags, err, tt.want)
			}
			if err == nil {
				fd.release()
			}
		}
	}
}
