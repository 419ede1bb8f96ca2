package transfer

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Rules that differ between systems. Their functions take the system, as in runtime.GOOS, so
// that those of every system are tested on each.

const windowsSystem = "windows"

// specialBits are the mode bits beyond the permissions.
var specialBits = map[uint32]os.FileMode{0o4000: os.ModeSetuid, 0o2000: os.ModeSetgid, 0o1000: os.ModeSticky}

// FileMode converts mode bits to the os.FileMode of a local file.
func FileMode(bits uint32) os.FileMode { return fileMode(runtime.GOOS, bits) }

// fileMode keeps files of Windows writable: it has no other permission, and does not replace
// or remove what is read-only.
func fileMode(system string, bits uint32) os.FileMode {
	mode := os.FileMode(bits & 0o777)
	if system == windowsSystem {
		return mode | 0o200
	}
	for bit, flag := range specialBits {
		if bits&bit != 0 {
			mode |= flag
		}
	}
	return mode
}

// ModeBits converts the os.FileMode of a local file to mode bits.
func ModeBits(mode os.FileMode) uint32 { return modeBits(runtime.GOOS, mode) }

// modeBits gives files of Windows, which have no mode, the usual one: that of package os is
// made up, and lets everybody write.
func modeBits(system string, mode os.FileMode) uint32 {
	bits := uint32(mode.Perm())
	if system == windowsSystem {
		if mode.IsDir() {
			return 0o755
		}
		return bits &^ 0o022
	}
	for bit, flag := range specialBits {
		if mode&flag != 0 {
			bits |= bit
		}
	}
	return bits
}

// sameMode reports whether modes are equal within the mask, if this system has modes.
func sameMode(system string, a, b, mask uint32) bool {
	return system == windowsSystem || (a^b)&mask == 0
}

// NamesDirectory reports whether a path of the server ends with a slash or "/.": it refers to
// the target of a link, not the link.
func NamesDirectory(name string) bool { return namesDirectory("", name) }

// LocalNamesDirectory is [NamesDirectory] for a path of this machine.
func LocalNamesDirectory(name string) bool { return namesDirectory(runtime.GOOS, name) }

func namesDirectory(system, name string) bool {
	separators := "/"
	if system == windowsSystem {
		separators = `/\`
	}
	switch name[strings.LastIndexAny(name, separators)+1:] {
	case "", ".", "..":
		return true
	}
	return false
}

// checkName rejects a name of a file that Windows cannot have, or that it takes for something
// else: a path, a stream of another file, a device, or another name.
func checkName(system, name string) error {
	if system != windowsSystem || name == "." {
		return nil
	}
	const forbidden = `<>:"/\|?*`
	switch i := strings.IndexFunc(name, func(r rune) bool { return r < ' ' || strings.ContainsRune(forbidden, r) }); {
	case i >= 0:
		return fmt.Errorf("a name of Windows cannot contain %q", name[i])
	case strings.HasSuffix(name, ".") || strings.HasSuffix(name, " "):
		return fmt.Errorf("a name of Windows cannot end with %q", name[len(name)-1])
	}
	stem, _, _ := strings.Cut(name, ".")
	stem = strings.ToUpper(strings.TrimRight(stem, " "))
	number, isPort := strings.CutPrefix(stem, "COM")
	if !isPort {
		number, isPort = strings.CutPrefix(stem, "LPT")
	}
	switch isPort = isPort && len([]rune(number)) == 1 && strings.Contains("0123456789¹²³", number); {
	case isPort, stem == "CON", stem == "PRN", stem == "AUX", stem == "NUL", stem == "CONIN$", stem == "CONOUT$":
		return fmt.Errorf("%s is a device of Windows", stem)
	}
	return nil
}
