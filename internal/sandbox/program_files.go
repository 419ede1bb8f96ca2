package sandbox

import (
	"bytes"
	"debug/elf"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// WithProgram returns the plan with read access to the ELF interpreter and the
// libraries of this program, which [Confinement.StartWorker] needs. If the program is
// static there are none. Files that an entry denies by name remain denied. It fails
// with UnsafeLink like [Policy.Resolve].
func (p *Plan) WithProgram() (*Plan, error) {
	if p.readsEverything() {
		return p, nil
	}
	with := *p
	with.rules, with.links = maps.Clone(p.rules), slices.Clone(p.links)
	for _, path := range loadedFiles() {
		resolved, err := resolveLinks(nil, path)
		if err != nil || resolved.missing || with.Access(resolved.path) >= AccessRead {
			continue // if it is needed, executing the worker fails
		}
		with.merge(rule{location: resolved.location, access: AccessRead})
		if err := with.checkLinks(target{resolved: resolved}); err != nil {
			return nil, err
		}
	}
	return &with, nil
}

// loadedFiles returns the ELF interpreter of this program and the libraries that it has
// mapped.
var loadedFiles = sync.OnceValue(func() []string {
	const self = "/proc/self/exe"
	file, err := elf.Open(self)
	if err != nil {
		return nil // then executing the worker fails
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
