package sandbox

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// TestStarterIsAssembledFromItsSource assembles the starter and the preparer of this machine's architecture again.
func TestStarterIsAssembledFromItsSource(t *testing.T) {
	dir := t.TempDir()
	if output, err := exec.CommandContext(t.Context(), "starter/build", dir, runtime.GOARCH).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for name, code := range map[string][]byte{runtime.GOARCH: starters[runtime.GOARCH].code, "prepare_" + runtime.GOARCH: preparers[runtime.GOARCH]} {
		built, err := os.ReadFile(filepath.Join(dir, name+".bin"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(built, code) {
			t.Errorf("starter/%s.bin is not what starter/%[1]s.s comes to: run starter/build starter", name)
		}
	}
}

func TestStartersAreAligned(t *testing.T) {
	for arch, starter := range starters {
		if len(starter.code) == 0 || len(starter.code)%8 != 0 {
			t.Errorf("%s has %d bytes of code: what follows must be at a multiple of 8", arch, len(starter.code))
		}
	}
}

// starterCalls are the system calls of starters, by their numbers on each architecture.
var starterCalls = map[string]map[uint32]string{
	"amd64": {
		1: "write", 5: "fstat", 14: "rt_sigprocmask", 59: "execve", 126: "capset", 157: "prctl", 231: "exit_group", 257: "openat",
		292: "dup3", 317: "seccomp", 436: "close_range", 446: "landlock_restrict_self",
	},
	"arm64": {
		64: "write", 80: "fstat", 135: "rt_sigprocmask", 221: "execve", 91: "capset", 167: "prctl", 94: "exit_group", 56: "openat",
		24: "dup3", 277: "seccomp", 436: "close_range", 446: "landlock_restrict_self",
	},
}

// TestStartersMakeTheSameCalls compares the starter of each architecture, of which one machine runs only one, with that of
// amd64.
func TestStartersMakeTheSameCalls(t *testing.T) {
	made := map[string][]string{"amd64": callsOfAMD64(starterAMD64), "arm64": callsOfARM64(starterARM64)}
	for arch := range starters {
		if !slices.Equal(made[arch], made["amd64"]) || !slices.Contains(made[arch], "seccomp") || slices.Contains(made[arch], "") {
			t.Errorf("%s makes the calls %q, and amd64 %q", arch, made[arch], made["amd64"])
		}
	}
}

// callsOfAMD64 lists the calls in code: those of which the number is put into eax just before.
func callsOfAMD64(code []byte) (calls []string) {
	for i := 5; i+2 <= len(code); i++ {
		if code[i] == 0x0f && code[i+1] == 0x05 && code[i-5] == 0xb8 {
			calls = append(calls, starterCalls["amd64"][binary.LittleEndian.Uint32(code[i-4:])])
		}
	}
	return calls
}

// callsOfARM64 lists the calls in code: those of which the number is put into x8 just before.
func callsOfARM64(code []byte) (calls []string) {
	const svc, mov, number = 0xd4000001, 0xd2800008, 0xffff << 5
	for i := 4; i+4 <= len(code); i += 4 {
		before, this := binary.LittleEndian.Uint32(code[i-4:]), binary.LittleEndian.Uint32(code[i:])
		if this == svc && before&^number == mov {
			calls = append(calls, starterCalls["arm64"][before&number>>5])
		}
	}
	return calls
}
