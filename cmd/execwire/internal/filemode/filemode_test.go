package filemode

import "testing"

func TestChange_Apply(t *testing.T) {
	for _, test := range []struct {
		mode      string
		bits      uint32
		directory bool
		want      uint32
	}{
		{"644", 0o755, false, 0o644}, {"0", 0o755, false, 0}, {"4755", 0, false, 0o4755},
		{"+x", 0o644, false, 0o755}, {"a+x", 0o600, false, 0o711}, {"u+x", 0o644, false, 0o744}, {"go-rw", 0o666, false, 0o600},
		{"u=rwx,go=rx", 0, false, 0o755}, {"=", 0o777, false, 0}, {"o=", 0o777, false, 0o770}, {"ug+rw,o-w", 0o002, false, 0o660},
		{"u+s", 0o755, false, 0o4755}, {"g-s", 0o6755, false, 0o4755}, {"+t", 0o777, true, 0o1777}, {"u+t", 0o777, true, 0o777},
		{"a+X", 0o644, false, 0o644}, {"a+X", 0o744, false, 0o755}, {"go=rX", 0o700, true, 0o755}, {"u=rw", 0o4777, false, 0o677},
		// as chmod of coreutils
		{"a=rw", 0o7777, false, 0o666}, {"a=rw", 0o7777, true, 0o6666}, {"o=rw", 0o7777, false, 0o6776}, {"g=", 0o7777, false, 0o5707}, {"=", 0o7777, true, 0o6000},
		{"u=s", 0o7777, false, 0o7077}, {"go=rX", 0o7777, true, 0o6755}, {"a=t", 0o7777, false, 0o1000}, {"ug=rwx", 0o7777, true, 0o7777},
	} {
		change, err := Parse(test.mode)
		if got := change.Apply(test.bits, test.directory); got != test.want || err != nil {
			t.Errorf("%s of %04o: %04o, %v, want %04o", test.mode, test.bits, got, err, test.want)
		}
	}
	for _, mode := range []string{"", "888", "10000", "x", "z+x", "u+q", "u+x,", "+x+w", "-1"} {
		if change, err := Parse(mode); err == nil {
			t.Errorf("%q is %+v", mode, change)
		}
	}
}
