package transfer

import (
	"os"
	"testing"
)

func TestCheckName(t *testing.T) {
	for _, name := range []string{
		`a\b`, "a/b", "x:stream", "C:", "a?", "a*", "a|b", "a<b", `a"b`, "a\x01", "a\nb",
		"name.", "name ", "..", "con", "NUL.txt", "aux .c", "com1", "LPT9.log", "COM¹", "conin$", "PRN.",
	} {
		if checkName("windows", name) == nil {
			t.Errorf("%q is accepted on Windows", name)
		}
		if err := checkName("linux", name); err != nil {
			t.Errorf("%q is rejected on Linux: %v", name, err)
		}
	}
	for _, name := range []string{".", ".profile", "a b.c", "console", "com", "com10", "lpt", "null", "a.con", "é;,'[]()", ".execwire-part"} {
		if err := checkName("windows", name); err != nil {
			t.Errorf("%q is rejected on Windows: %v", name, err)
		}
	}
}

func TestModes(t *testing.T) {
	for _, tc := range []struct {
		system string
		mode   os.FileMode
		bits   uint32
		back   os.FileMode
	}{
		{"linux", 0o666, 0o666, 0o666},
		{"linux", 0o755 | os.ModeSetuid, 0o4755, 0o755 | os.ModeSetuid},
		{"darwin", os.ModeDir | os.ModeSticky | 0o777, 0o1777, os.ModeSticky | 0o777},
		{"windows", 0o666, 0o644, 0o644},
		{"windows", 0o444, 0o444, 0o644},
		{"windows", os.ModeDir | 0o777, 0o755, 0o755},
	} {
		bits := modeBits(tc.system, tc.mode)
		if bits != tc.bits {
			t.Errorf("modeBits(%s, %v) = %o, want %o", tc.system, tc.mode, bits, tc.bits)
		}
		if back := fileMode(tc.system, bits); back != tc.back {
			t.Errorf("fileMode(%s, %o) = %v, want %v", tc.system, bits, back, tc.back)
		}
	}
	if !sameMode("windows", 0o644, 0o600, 0o777) || sameMode("linux", 0o644, 0o600, 0o777) || !sameMode("linux", 0o4644, 0o644, 0o777) {
		t.Error("modes are compared on Windows, or not on Linux")
	}
}

func TestNamesDirectory(t *testing.T) {
	for _, tc := range []struct {
		path           string
		linux, windows bool
	}{
		{"a/", true, true}, {"a/.", true, true}, {"..", true, true}, {"a", false, false}, {"a.", false, false},
		{`a\`, false, true}, {`C:\a\.`, false, true}, {`C:\`, false, true}, {`a\b`, false, false},
	} {
		if got := namesDirectory("linux", tc.path); got != tc.linux {
			t.Errorf("on Linux %q = %v", tc.path, got)
		}
		if got := namesDirectory("windows", tc.path); got != tc.windows {
			t.Errorf("on Windows %q = %v", tc.path, got)
		}
		if got := NamesDirectory(tc.path); got != tc.linux {
			t.Errorf("on the server %q = %v", tc.path, got)
		}
	}
}
