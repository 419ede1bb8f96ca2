package sandbox

import (
	"testing"

	"github.com/creack/pty"
)

// TestLandlock_Devices opens the files in /dev, with a policy that makes everything
// readable and with one that names /dev: only harmless devices and the program's own
// terminal are accessible.
func TestLandlock_Devices(t *testing.T) {
	master, other, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer other.Close()
	sandboxes := probed(t, Landlock)
	for name, entries := range map[string][]Entry{
		"root":        {{Special: SpecialRoot, Access: AccessRead}},
		"/dev":        {{Special: SpecialMinimal, Access: AccessRead}, {Path: "/dev", Access: AccessRead}},
		"/dev, write": {{Special: SpecialMinimal, Access: AccessRead}, {Path: "/dev", Access: AccessWrite}},
		"/dev/pts":    {{Special: SpecialRoot, Access: AccessRead}, {Path: "/dev/pts", Access: AccessWrite}},
	} {
		plan := resolve(t, Policy{Entries: entries})
		for script, works := range map[string]bool{
			"for d in null zero full random urandom; do head -c 0 /dev/$d || exit 1; done": true,
			"echo > /dev/null":                              true,
			"head -c 0 < /dev/stdin":                        true,
			"echo x > /dev/fd/1":                            true,
			"ls /dev /dev/pts":                              true,
			"head -c 0 $(tty)":                              true,
			": < /dev/tty":                                  true,
			": < " + other.Name():                           false,
			": > " + other.Name():                           false,
			": < /dev/ptmx":                                 false,
			": < /dev/pts/ptmx":                             false,
			": <> /dev/ptmx":                                false,
			"cd /dev/pts && : < ptmx":                       false,
			"cat /etc/passwd && ls /usr && test -r /bin/sh": true,
		} {
			output, status, err := inTerminal(shell(script), sandboxes, plan)
			if err != nil || (status == 0) != works {
				t.Errorf("%s: %s: %#x %v: %s", name, script, status, err, output)
			}
		}
	}
	named := resolve(t, Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}, {Path: other.Name(), Access: AccessRead}}})
	if output, status := runProgram(t, sandboxes, named, shell(": < "+other.Name())); status != 0 {
		t.Errorf("a terminal that the policy names: %#x: %s", status, output)
	}
}
