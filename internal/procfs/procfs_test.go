//go:build linux

package procfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	rest := " S 1 42 40 34816 42 4194304 130 0 0 0 0 0 0 0 20 0 1 0 123456 2500000 200 18446744073709551615 0 0 0"
	want := Stat{PID: 43, PPID: 1, Group: 42, Session: 40, Start: 123456}
	for _, name := range []string{"sh", "", "(sd-pam)", "a) R 7 7 7", "a\nb) S 2", ")", "((", " ) ) "} {
		if got, ok := ParseStat([]byte("43 (" + name + ")" + rest + "\n")); !ok || got != want {
			t.Errorf("%q: %+v, %v", name, got, ok)
		}
	}
	dead := want
	dead.Dead = true
	threads := " Z 1 42 40 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 "
	for text, want := range map[string]Stat{
		"43 (x)" + threads + "1 0 123456 0": dead,
		"43 (x)" + threads + "2 0 123456 0": want, // its first thread has ended, another one runs
	} {
		if got, ok := ParseStat([]byte(text)); !ok || got != want {
			t.Errorf("%q: %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "43", "43 (x", "43 x)", ") 43 (", "43 (x) S 1 2 3", "x (x)" + rest, "43 (x) S x" + rest[4:]} {
		if got, ok := ParseStat([]byte(text)); ok {
			t.Errorf("%q is %+v", text, got)
		}
	}
}

// The status of a process in many groups is longer than usual, and complete.
func TestStatus(t *testing.T) {
	sleep := exec.Command("sleep", "1000")
	if os.Geteuid() == 0 {
		groups := make([]uint32, 2000)
		for i := range groups {
			groups[i] = uint32(i + 1)
		}
		sleep.SysProcAttr = &unix.SysProcAttr{Credential: &syscall.Credential{Groups: groups}}
	}
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	fields, err := Status(sleep.Process.Pid, "PPid", "Groups", "Seccomp_filters")
	if err != nil || len(fields) != 3 || fields["PPid"] != strconv.Itoa(os.Getpid()) || fields["Seccomp_filters"] == "" {
		t.Errorf("%v, %v", fields, err)
	}
	if os.Geteuid() == 0 && len(fields["Groups"]) < statusBytes {
		t.Errorf("it has the groups %s", fields["Groups"])
	}
	_ = sleep.Process.Kill()
	_ = sleep.Wait()
	if _, err := Status(1 << 30); err != unix.ESRCH { // the PID of one that has ended may be reused
		t.Errorf("of a process that does not exist: %v", err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("a) b", 43)
	f.Fuzz(func(t *testing.T, name string, pid int) {
		text := fmt.Sprintf("%d (%s) S 1 42 40 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 123456 0", pid, name)
		if p, ok := ParseStat([]byte(text)); !ok || p.PID != pid || p.Session != 40 || p.Start != 123456 {
			t.Errorf("%q: %+v, %v", text, p, ok)
		}
	})
}

func TestParseFileID(t *testing.T) {
	for target, want := range map[string]FileID{
		"pipe:[123]": {Number: 123}, "/dev/pts/7": {Terminal: true, Number: 7},
		"": {}, "pipe:[]": {}, "pipe:[1": {}, "/dev/pts/": {}, "/dev/pts/ptmx": {}, "/dev/null": {}, "socket:[5]": {}, "123": {},
	} {
		got, ok := parseFileID(target)
		if ok != (want != FileID{}) || ok && got != want {
			t.Errorf("%q: %+v, %v", target, got, ok)
		}
	}
}

func TestCheckProcMount(t *testing.T) {
	if err := CheckMount("/proc"); err != nil {
		t.Error(err)
	}
	dir := t.TempDir()
	if err := CheckMount(dir); err == nil {
		t.Error("an empty directory was accepted as /proc")
	}
	if err := os.Symlink(strconv.Itoa(os.Getpid()+1), filepath.Join(dir, "self")); err != nil {
		t.Fatal(err)
	}
	if err := CheckMount(dir); err == nil || !strings.Contains(err.Error(), "another PID namespace") {
		t.Errorf("%v", err)
	}
}

// A process whose parent ended during the listing gets its new parent.
func TestUpdateParents(t *testing.T) {
	listed := []Stat{{PID: 1}, {PID: 2, PPID: 90, Start: 5}, {PID: 3, PPID: 91, Start: 6}, {PID: 4, PPID: 92, Start: 7}, {PID: 5, PPID: 2}}
	now := map[int][]Stat{
		2: {{PID: 2, PPID: 93, Start: 5}, {PID: 2, PPID: 1, Start: 5}}, // has lost two parents
		3: {{PID: 3, PPID: 1, Start: 8}},                               // is another process by now
	}
	updateParents(listed, func(pid int) (Stat, error) {
		if len(now[pid]) == 0 {
			return Stat{}, unix.ESRCH
		}
		p := now[pid][0]
		now[pid] = now[pid][1:]
		return p, nil
	})
	want := []Stat{{PID: 1}, {PID: 2, PPID: 1, Start: 5}, {PID: 3, PPID: 91, Start: 6}, {PID: 4, PPID: 92, Start: 7}, {PID: 5, PPID: 2}}
	if !slices.Equal(listed, want) {
		t.Errorf("%+v, want %+v", listed, want)
	}
}
