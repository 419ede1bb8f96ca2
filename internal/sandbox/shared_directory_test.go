package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/testrace"
)

// protectedObstacles create a protected name that could make a start fail, wait or deny
// more.
var protectedObstacles = map[string]func(at, work string) error{
	"link to a directory":    func(at, work string) error { return os.Symlink(work, at) },
	"dangling link":          func(at, _ string) error { return os.Symlink("/nowhere", at) },
	"link to itself":         func(at, _ string) error { return os.Symlink(at, at) },
	"FIFO":                   func(at, _ string) error { return unix.Mkfifo(at, 0o666) },
	"socket":                 func(at, _ string) error { return bindAndLeave(at) },
	"device":                 func(at, _ string) error { return unix.Mknod(at, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 8))) },
	"gitdir file":            func(at, work string) error { return os.WriteFile(at, []byte("gitdir: "+work+"/src\n"), 0o644) },
	"gitdir file to nowhere": func(at, _ string) error { return os.WriteFile(at, []byte("gitdir: /etc/passwd/x\n"), 0o644) },
	"unreadable file":        func(at, _ string) error { return os.WriteFile(at, []byte("gitdir: /\n"), 0) },
	"huge file": func(at, _ string) error {
		return errors.Join(os.WriteFile(at, []byte("gitdir:"), 0o644), os.Truncate(at, 1<<40))
	},
	"directory without permissions": func(at, _ string) error { return os.Mkdir(at, 0) },
	"directory":                     func(at, _ string) error { return os.Mkdir(at, 0o755) },
	"locked placeholder":            func(at, _ string) error { return errors.Join(os.Mkdir(at, 0o755), os.Chmod(at, os.ModeSticky|0o755)) },
}

// bindAndLeave creates a socket without a listener.
func bindAndLeave(at string) error {
	dir, err := os.Open(filepath.Dir(at))
	if err != nil {
		return err
	}
	defer dir.Close()
	short := filepath.Join(ownDescriptor(int(dir.Fd())), filepath.Base(at)) // the path itself may be too long for a socket
	return withSocket(unix.AF_UNIX, unix.SOCK_STREAM, 0, func(fd int) error { return unix.Bind(fd, &unix.SockaddrUnix{Name: short}) })
}

// asUser creates files as another user.
func asUser(t *testing.T, id int, files func() error) {
	t.Helper()
	err := onNewThread(func() error {
		if err := errors.Join(unix.Setfsgid(id), unix.Setfsuid(id)); err != nil {
			return err
		}
		return files()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// obstruct creates obstacles of another user in a directory, and holds locks on the
// directories among them during the test.
func obstruct(t *testing.T, place, work, obstacle string) {
	t.Helper()
	for _, name := range protectedNames {
		at := filepath.Join(place, name)
		if obstacle == "device" { // another user cannot make it, but root can give it away
			if err := errors.Join(protectedObstacles[obstacle](at, work), os.Lchown(at, nobody, nobody)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		asUser(t, nobody, func() error { return protectedObstacles[obstacle](at, work) })
		if obstacle == "locked placeholder" {
			lock, err := os.Open(at)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = lock.Close() })
			if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// sharedDirectory creates a directory that every user can write to.
func sharedDirectory(t *testing.T, dir string) string {
	t.Helper()
	letPass(t, dir)
	shared := filepath.Join(dir, "shared")
	if err := errors.Join(os.Mkdir(shared, 0o700), os.Chmod(shared, os.ModeSticky|0o777)); err != nil {
		t.Fatal(err)
	}
	return shared
}

func TestSharedDirectory_EntriesOfAnotherUser_ChangeNothing(t *testing.T) {
	testrace.Slow(t)
	for _, backend := range []Backend{Bubblewrap, Landlock} {
		sandboxes := probed(t, backend)
		for obstacle := range protectedObstacles {
			t.Run(backend.String()+"/"+obstacle, func(t *testing.T) {
				dir := build(t, "w/src/", "plain/")
				shared := sharedDirectory(t, dir)
				around := ResolveOptions{TmpDir: shared}
				var policies []Policy
				var before []*Plan
				for _, grant := range []Entry{{Special: SpecialTmpdir, Access: AccessWrite}, {Path: shared, Access: AccessWrite}} {
					policy := Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}, {Path: dir + "/w", Access: AccessWrite}, grant}}
					if backend == Bubblewrap { // Landlock cannot protect what is in a writable place
						policy.WorkspaceRoots = []string{dir + "/w"}
					}
					plan, err := policy.Resolve(t.Context(), around)
					if err != nil {
						t.Fatal(err)
					}
					policies, before = append(policies, policy), append(before, plan)
				}
				obstruct(t, shared, dir+"/w", obstacle)
				for i, policy := range policies {
					plan, err := policy.Resolve(t.Context(), around)
					if err != nil {
						t.Fatalf("%v: %v", policy.Entries[2], err)
					}
					if grantsOf(plan) != grantsOf(before[i]) || sandboxes.Key(plan) != sandboxes.Key(before[i]) {
						t.Errorf("%v: the plan has changed", policy.Entries[2])
					}
					script := "echo > " + shared + "/new && rm " + shared + "/new && echo > " + dir + "/w/src/new && rm " + dir + "/w/src/new"
					if output, status := runProgram(t, sandboxes, plan, shell(script)); status != 0 {
						t.Errorf("%v: %#x %s", policy.Entries[2], status, output)
					}
				}
			})
		}
	}
}

// TestSlashTmp_IsShared whatever its mode is.
func TestSlashTmp_IsShared(t *testing.T) {
	dir := build(t, "private/.git/")
	for name, policy := range map[string]Policy{
		"/tmp":   {Entries: []Entry{{Special: SpecialSlashTmp, Access: AccessWrite}}},
		"TMPDIR": {Entries: []Entry{{Special: SpecialTmpdir, Access: AccessWrite}}},
	} {
		plan, err := policy.Resolve(t.Context(), ResolveOptions{TmpDir: dir + "/private"})
		if err != nil || len(plan.rules) != 1 {
			t.Errorf("%s: %+v, %v", name, plan, err)
		}
	}
}

// TestWorkspaceInASharedDirectory_IsProtected, also if it is shared itself.
func TestWorkspaceInASharedDirectory_IsProtected(t *testing.T) {
	for obstacle := range protectedObstacles {
		if strings.Contains(obstacle, "link") {
			continue // refused: see TestResolve_InvalidPolicy_Fails
		}
		t.Run(obstacle, func(t *testing.T) {
			dir := build(t, "w/src/")
			shared := sharedDirectory(t, dir)
			obstruct(t, shared, dir+"/w", obstacle)
			policy := Policy{WorkspaceRoots: []string{shared, dir + "/w"}, Entries: []Entry{
				{Special: SpecialRoot, Access: AccessRead}, {Special: SpecialProjectRoots, Access: AccessWrite}, {Special: SpecialTmpdir, Access: AccessWrite}}}
			plan, err := policy.Resolve(t.Context(), ResolveOptions{TmpDir: shared})
			if err != nil {
				t.Fatal(err)
			}
			if plan.Access(filepath.Join(shared, ".git")) != AccessRead {
				t.Error("it is writable")
			}
			script := "cd " + shared + "; mv .git x 2>/dev/null || rm -rf .git 2>/dev/null; test -e .git && echo > " + dir + "/w/src/new"
			if output, status := runProgram(t, probed(t, Bubblewrap), plan, shell(script)); status != 0 {
				t.Errorf("%#x %s", status, output)
			}
		})
	}
}

// TestGitFile_IsJudgedOpen replaces a gitdir file by a FIFO between lstat and open,
// which must not block.
func TestGitFile_IsJudgedOpen(t *testing.T) {
	dir := build(t)
	if err := unix.Mkfifo(dir+"/.git", 0o600); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(dir+"/.git", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	at, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	done := make(chan error, 1)
	go func() {
		target, err := readGitFile(openDir{fd: int(at.Fd())}, ".git")
		if target != "" {
			err = errors.New("it points to " + target)
		}
		done <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-ctx.Done():
		t.Error("it waits for the FIFO")
		_ = writer.Close()
		<-done
	}
}

// TestPlaceholder_LockedByAProgram: programs that can read a placeholder can lock it,
// which must not prevent starts.
func TestPlaceholder_LockedByAProgram(t *testing.T) {
	dir := build(t, "w/")
	for _, name := range protectedNames {
		at := filepath.Join(dir, "w", name)
		if err := errors.Join(os.Mkdir(at, 0o755), os.Chmod(at, os.ModeSticky|0o755)); err != nil {
			t.Fatal(err)
		}
		lock, err := os.Open(at)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
	}
	plan := resolve(t, Policy{WorkspaceRoots: []string{dir + "/w"}, Entries: []Entry{
		{Special: SpecialRoot, Access: AccessRead}, {Special: SpecialProjectRoots, Access: AccessWrite}}})
	if output, status := runProgram(t, probed(t, Bubblewrap), plan, shell("cd "+dir+"/w && echo > new && ! mkdir .git/x 2>/dev/null")); status != 0 {
		t.Errorf("%#x %s", status, output)
	}
}
