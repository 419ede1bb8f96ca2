package sandbox

import (
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkSpawn measures the time from the start of /bin/true to its end: without a
// sandbox, with each backend, and with bwrap alone and the same namespaces. It
// alternates between them and reports medians.
func BenchmarkSpawn(b *testing.B) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	program := Program{Path: "/bin/true", Argv: []string{"true"}, Env: os.Environ(), Dir: "/", Files: []int{fd, fd, fd}, Terminal: -1}
	policy := Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}, {Path: b.TempDir(), Access: AccessWrite}}}
	plan, err := policy.Resolve(b.Context(), ResolveOptions{})
	if err != nil {
		b.Fatal(err)
	}
	landlock := New(Options{Without: others(Landlock)})
	defer landlock.Close()
	landlock.Statuses() // probes
	bubblewrap := New(Options{Without: others(Bubblewrap)})
	defer bubblewrap.Close()
	bwrap := program
	bwrap.Path, bwrap.Argv = bubblewrap.Statuses()[0].Path, []string{
		"bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-net", "--cap-drop", "ALL",
		"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "/bin/true",
	}
	ways := []struct {
		name      string
		program   Program
		sandboxes *Sandboxes
	}{{"plain", program, nil}, {"landlock", program, landlock}, {"bubblewrap", program, bubblewrap}, {"bwrap-alone", bwrap, nil}}
	times := map[string][]float64{}
	for b.Loop() {
		for _, way := range ways {
			start := time.Now()
			pid, release, err := launchProgram(way.program, way.sandboxes, plan)
			if err != nil {
				b.Fatal(err)
			}
			if status := reap(pid); status != unix.WaitStatus(0) {
				b.Fatal(status)
			}
			release()
			times[way.name] = append(times[way.name], float64(time.Since(start).Microseconds())/1000)
		}
	}
	for name, all := range times {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], name+"-ms")
	}
}

// BenchmarkResolve resolves the policy of a workspace.
func BenchmarkResolve(b *testing.B) {
	policy := Policy{WorkspaceRoots: []string{b.TempDir()}, Entries: []Entry{
		{Special: SpecialRoot, Access: AccessRead}, {Special: SpecialProjectRoots, Access: AccessWrite},
		{Special: SpecialSlashTmp, Access: AccessWrite},
	}}
	for b.Loop() {
		if _, err := policy.Resolve(b.Context(), ResolveOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
