package secretfile

import (
	"strings"
	"testing"
)

func TestCheckEntries(t *testing.T) {
	const owner, user, other, users = "S-1-5-21-1-2-3-1001", "S-1-5-21-1-2-3-1002", "S-1-5-21-1-2-3-1003", "S-1-5-32-545"
	const all, readAndExecute, modify = 0x1f01ff, 0x1200a9, 0x1301bf
	for _, tc := range []struct {
		name           string
		entries        []entry
		secret, public string // what the error says; "" for none
	}{
		{"nobody", nil, "", ""},
		{"of a profile", []entry{{systemSID, all}, {administratorsSID, all}, {user, all}, {owner, genericAll}, {ownerRightsSID, all}}, "", ""},
		{"of a program's data", []entry{{systemSID, all}, {users, readAndExecute}}, "read by others than its owner (" + users, ""},
		{"of the root of a volume", []entry{{administratorsSID, all}, {other, modify}}, "read", "written by others than its owner (" + other},
		{"everyone", []entry{{everyoneSID, genericAll}}, "read", "written"},
		{"attributes", []entry{{everyoneSID, 0x120080}}, "", ""},
		{"append", []entry{{other, 0x4}}, "written", "written"},
		{"its list", []entry{{other, 0x40000}}, "written", "written"},
		{"its owner", []entry{{other, 0x80000}}, "written", "written"},
		{"generic read", []entry{{other, 0x80000000}}, "read", ""},
		{"generic write", []entry{{other, 0x40000000}}, "written", "written"},
	} {
		for secret, want := range map[bool]string{true: tc.secret, false: tc.public} {
			err := checkEntries(`C:\x`, tc.entries, owner, user, secret)
			switch {
			case want == "" && err != nil:
				t.Errorf("%s, secret %v: %v", tc.name, secret, err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `icacls "C:\x" /inheritance:r`)):
				t.Errorf("%s, secret %v: %v, want %q and the fix", tc.name, secret, err, want)
			}
		}
	}
}
