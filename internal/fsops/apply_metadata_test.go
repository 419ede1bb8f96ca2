package fsops_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/testproc"
)

func init() { testproc.Register("fsops-unprivileged-replace", replaceUnprivileged) }

// team is a group of its own without members.
const team = 54321

// foreignFiles are the owner, group and mode of files that an unprivileged user
// replaces, and their result.
var foreignFiles = map[string]struct {
	uid, gid int
	mode     uint32
	want     string
}{
	"read by all":         {0, 0, 0o664, "65534 65534 644"},
	"read by its group":   {0, 0, 0o660, "65534 65534 600"},
	"of a shared group":   {0, team, 0o660, "65534 54321 660"},
	"with set-IDs":        {0, team, 0o6775, "65534 54321 775"},
	"own, of a group":     {nobody, team, 0o2750, "65534 54321 2750"},
	"own, of another one": {nobody, 0, 0o2755, "65534 65534 755"},
	"sticky/another's":    {0, 0, 0o666, "permission denied EPERM"},
	"sticky/own":          {nobody, nobody, 0o600, "65534 65534 600"},
}

// replaceUnprivileged DIR replaces the files as an unprivileged user, and prints the
// result of each.
func replaceUnprivileged(args []string) int {
	if syscall.Setgroups([]int{team}) != nil || syscall.Setgid(nobody) != nil || syscall.Setuid(nobody) != nil {
		return 1
	}
	notes := map[string]string{}
	for name := range foreignFiles {
		for suffix, uploads := range map[string]*fsops.Uploads{"": fsops.NewUploads(time.Minute, 4, 4), ".named": fsops.NewUploads(time.Minute, 4, 4).WithNames()} {
			done, err := replace(context.Background(), uploads, fsops.Replacement{Path: args[0] + "/" + name + suffix}, "new")
			m := done.Metadata
			notes[name+suffix] = fmt.Sprintf("%d %d %o", m.UID, m.GID, m.Mode)
			if typed, ok := err.(*fsops.Error); ok {
				notes[name+suffix] = typed.Kind.String() + " " + typed.ErrnoName()
			}
			uploads.Close()
		}
	}
	if json.NewEncoder(os.Stdout).Encode(notes) != nil {
		return 1
	}
	return 0
}

// A file whose group changes must not become readable for more users.
func TestUpload_UnprivilegedUser_ForeignFiles(t *testing.T) {
	dir := build(t, "sticky/")
	makeAccessible(t, dir)
	do := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, file := range foreignFiles {
		for _, suffix := range []string{"", ".named"} {
			path := dir + "/" + name + suffix
			do(os.WriteFile(path, []byte("old"), 0o600))
			do(os.Chown(path, file.uid, file.gid))
			do(unix.Chmod(path, file.mode))
		}
	}
	do(unix.Chmod(dir, 0o777))
	do(unix.Chmod(dir+"/sticky", 0o1777))
	argv := testproc.Argv("fsops-unprivileged-replace", dir)
	output, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).Output()
	if err != nil {
		t.Fatalf("the helper failed; it needs root: %v", err)
	}
	var notes map[string]string
	do(json.Unmarshal(output, &notes))
	for name, file := range foreignFiles {
		for _, suffix := range []string{"", ".named"} {
			if notes[name+suffix] != file.want {
				t.Errorf("%s: %s, want %s", name+suffix, notes[name+suffix], file.want)
			}
		}
	}
	entries, err := os.ReadDir(dir + "/sticky")
	if content, _ := os.ReadFile(dir + "/sticky/another's"); err != nil || string(content) != "old" || len(entries) != 4 {
		t.Errorf("after the failed replacement there are %q and %v: %v", content, entries, err)
	}
}

// accessList encodes an access control list with an entry for a user, and none
// for the group.
func accessList(user uint32) []byte {
	list := binary.LittleEndian.AppendUint32(nil, 2)
	const none = ^uint32(0)
	for _, entry := range []struct {
		tag, bits uint16
		id        uint32
	}{{0x01, 6, none}, {0x02, 4, user}, {0x04, 0, none}, {0x10, 4, none}, {0x20, 0, none}} {
		list = binary.LittleEndian.AppendUint16(list, entry.tag)
		list = binary.LittleEndian.AppendUint16(list, entry.bits)
		list = binary.LittleEndian.AppendUint32(list, entry.id)
	}
	return list
}

// With an access control list, the group bits of the mode are its mask. Without
// the list, the group would get all of these permissions.
func TestUpload_KeepsAccessList(t *testing.T) {
	const attribute = "system.posix_acl_access"
	eachStore(t, func(t *testing.T, uploads *fsops.Uploads) {
		dir := build(t, "listed = old", "plain mode=640 = old", "asked = old")
		for _, name := range []string{"/listed", "/asked"} {
			if err := unix.Setxattr(dir+name, attribute, accessList(nobody), 0); err != nil {
				t.Fatalf("the tests need a file system with access control lists: %v", err)
			}
		}
		if err := unix.Setxattr(dir, "system.posix_acl_default", accessList(team), 0); err != nil {
			t.Fatal(err)
		}
		bits := uint32(0o600)
		for name, want := range map[string]struct {
			permissions *uint32
			mode        uint32
			list        []byte
		}{"/listed": {nil, 0o640, accessList(nobody)}, "/plain": {nil, 0o640, nil}, "/asked": {&bits, 0o600, nil}} {
			done, err := replace(t.Context(), uploads, fsops.Replacement{Path: dir + name, Permissions: want.permissions}, "new")
			if err != nil || done.Metadata.Mode != want.mode {
				t.Errorf("%s has mode %o: %v", name, done.Metadata.Mode, err)
			}
			list := make([]byte, 1000)
			n, err := unix.Getxattr(dir+name, attribute, list)
			switch {
			case name == "/asked" && err == nil: // the mask is the requested mode
			case want.list == nil && err == unix.ENODATA:
			case err != nil || !bytes.Equal(list[:n], want.list):
				t.Errorf("%s has the list %x: %v", name, list[:max(n, 0)], err)
			}
		}
	})
}

func TestSetMetadata(t *testing.T) {
	dir := build(t, "f mode=640 = text", "d/", "p |", "l -> f", "away -> none")
	at := time.Unix(1_000_000_000, 5000)
	for _, name := range []string{"f", "d", "p", "l"} {
		mode := uint32(0o4711)
		m, err := fsops.SetMetadata(dir+"/"+name, fsops.Changes{Permissions: &mode, ModifyTime: at})
		if err != nil || m.Mode != mode || !m.ModifyTime.Equal(at) || m.IsSymlink {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
		before := m.AccessTime
		if m, err = fsops.SetMetadata(dir+"/"+name, fsops.Changes{}); err != nil || m.Mode != mode || !m.ModifyTime.Equal(at) || !m.AccessTime.Equal(before) {
			t.Errorf("%s, unchanged: %+v, %v", name, m, err)
		}
		if m, err = fsops.SetMetadata(dir+"/"+name, fsops.Changes{Touch: true}); err != nil || m.Mode != mode || !m.ModifyTime.After(at) || !m.AccessTime.Equal(m.ModifyTime) {
			t.Errorf("%s, touched: %+v, %v", name, m, err)
		}
	}
	_, missing := fsops.SetMetadata(dir+"/none", fsops.Changes{})
	wantError(t, "a missing file", missing, fsops.NotFound, unix.ENOENT)
	_, dangling := fsops.SetMetadata(dir+"/away", fsops.Changes{Touch: true})
	wantError(t, "a dangling link", dangling, fsops.NotFound, unix.ENOENT)
	_, linked := fsops.SetMetadata(dir+"/l", fsops.Changes{Touch: true}, fsops.NoSymlinks)
	if fsops.KindOf(linked) != fsops.SymlinkRefused {
		t.Errorf("a link without following: %v", linked)
	}
	if m, err := fsops.SetMetadata(dir+"/f", fsops.Changes{Touch: true}, fsops.NoSymlinks); err != nil || m.Mode != 0o4711 {
		t.Errorf("without links: %+v, %v", m, err)
	}
}
