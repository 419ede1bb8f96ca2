package fsops

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// However few names are sorted at once, each is returned once, in order.
func TestReadSorted_LargeDirectory_IsSortedInParts(t *testing.T) {
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
	fd, err := openAt(unix.AT_FDCWD, dir, openDirRead, 0)
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
			t.Errorf("%d names at once: got %d names, want %d", most, len(got), len(want))
		}
	}
}

func TestOpenBeneath_Link_Fails(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{os.MkdirAll(dir+"/d/e", 0o755), os.WriteFile(dir+"/d/e/f", nil, 0o600), os.Symlink("d", dir+"/ld"),
		os.Symlink("f", dir+"/d/e/lf"), os.Symlink("/", dir+"/root")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	top, err := openPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer top.release()
	for _, tt := range []struct {
		path  string
		flags int
		want  error
	}{
		{"d", openDirRead, nil}, {"d/e", openDirPath, nil}, {"d/e/f", commonFlags | unix.O_RDONLY, nil},
		{"ld", openDirRead, unix.ELOOP}, {"ld", openDirPath, unix.ELOOP}, {"ld/e", openDirRead, unix.ELOOP}, {"ld/e/f", commonFlags | unix.O_RDONLY, unix.ELOOP},
		{"d/e/lf", commonFlags | unix.O_RDONLY, unix.ELOOP}, {"root/etc", openDirRead, unix.ELOOP},
		{"d/none", openDirRead, unix.ENOENT}, {"d/e/f/x", openDirRead, unix.ENOTDIR}, {"d/e/f", openDirRead, unix.ENOTDIR},
	} {
		fd, err := openBeneath(top, tt.path, tt.flags)
		if err != tt.want {
			t.Errorf("%s with %#x: %v, want %v", tt.path, tt.flags, err, tt.want)
		}
		if err == nil {
			fd.release()
		}
	}
}
