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

// WithProgram is the plan that also grants reading what this program was loaded from beside its own file: nothing if it
// is static, as it is where nothing was linked by a C compiler. [Confinement.StartHelper] needs that. What an entry denies
// by its very name stays denied. It fails with UnsafeLink as [Policy.Resolve] does.
func (p *Plan) WithProgram() (*Plan, error) {
	if p.readsEverything() {
		return p, nil
	}
	with := *p
	with.rules, with.links = maps.Clone(p.rules), slices.Clone(p.links)
	var s survey
	defer s.close()
	for _, path := range loadedFrom() {
		walked, err := s.follow(path)
		if err != nil || walked.missing || with.Access(walked.path) >= AccessRead {
			continue // if it is needed the helper cannot be executed, and says so
		}
		with.merge(rule{spot: walked.spot, access: AccessRead})
		if err := with.checkLinks(grant{found: walked}); err != nil {
			return nil, err
		}
	}
	return &with, nil
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
