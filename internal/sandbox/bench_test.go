package sandbox

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkSpawn measures the time from the wish to the end of /bin/true, without a sandbox and with each.
func BenchmarkSpawn(b *testing.B) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	program := Program{Path: "/bin/true", Argv: []string{"true"}, Env: os.Environ(), Dir: "/", Files: []int{fd, fd, fd}, Terminal: -1}
	policy := Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}, {Path: b.TempDir(), Access: AccessWrite}}}
	plan, err := policy.Resolve(b.Context(), Surroundings{})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("plain", func(b *testing.B) { benchmarkSpawn(b, program, nil, plan) })
	for _, backend := range []Backend{Landlock, Bubblewrap} {
		b.Run(backend.String(), func(b *testing.B) {
			sandboxes := Probe(b.Context(), Options{Without: others(backend)})
			defer sandboxes.Close()
			benchmarkSpawn(b, program, sandboxes, plan)
		})
	}
}

func benchmarkSpawn(b *testing.B, program Program, sandboxes *Sandboxes, plan *Plan) {
	for b.Loop() {
		pid, release, err := launchProgram(program, sandboxes, plan)
		if err != nil {
			b.Fatal(err)
		}
		if status := reap(pid); status != unix.WaitStatus(0) {
			b.Fatal(status)
		}
		release()
	}
}

// BenchmarkResolve measures what it takes to look at the machine for the policy of a workspace.
func BenchmarkResolve(b *testing.B) {
	policy := Policy{WorkspaceRoots: []string{b.TempDir()}, Entries: []Entry{
		{Special: SpecialRoot, Access: AccessRead}, {Special: SpecialProjectRoots, Access: AccessWrite},
		{Special: SpecialSlashTmp, Access: AccessWrite},
	}}
	for b.Loop() {
		if _, err := policy.Resolve(b.Context(), Surroundings{}); err != nil {
			b.Fatal(err)
		}
	}
}
