package sandbox

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Libraries are the entries by which a plan grants what this program was loaded from beside its own file, as far as it
// does not already: none if it is static, as it is where nothing was linked by a C compiler. [Confinement.StartHelper]
// needs them. They are found out once.
func Libraries(plan *Plan) []Entry {
	if plan.readsEverything() {
		return nil
	}
	var missing []Entry
	for _, path := range loadedFrom() {
		if found, err := follow(path); err == nil && plan.Access(found.path) < AccessRead {
			missing = append(missing, Entry{Path: path, Access: AccessRead})
		}
	}
	return missing
}

// loadedFrom are the interpreter of this program's file and the libraries that it has mapped.
var loadedFrom = sync.OnceValue(func() []string {
	const self = "/proc/self/exe"
	file, err := elf.Open(self)
	if err != nil {
		return nil // then the helper cannot be executed, and says so
	}
	defer file.Close()
	var paths []string
	for _, part := range file.Progs {
		if part.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, part.Filesz)
		if _, err := part.ReadAt(name, 0); err == nil {
			paths = append(paths, string(bytes.TrimRight(name, "\x00")))
		}
	}
	if len(paths) == 0 {
		return nil
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return paths
	}
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if len(fields) == 6 && strings.Contains(filepath.Base(fields[5]), ".so") && filepath.IsAbs(fields[5]) && !slices.Contains(paths, fields[5]) {
			paths = append(paths, fields[5])
		}
	}
	return paths
})
