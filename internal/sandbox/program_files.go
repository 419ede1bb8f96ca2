package sandbox

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
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
	file, err := os.Open(self)
	if err != nil {
		return nil // then executing the worker fails
	}
	defer file.Close()
	interpreter, err := interpreterOf(file)
	if err != nil || interpreter == "" {
		return nil
	}
	paths := []string{interpreter}
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

// interpreterOf returns the ELF interpreter of a program for 64-bit little-endian machines,
// or "" if it has none. elf.NewFile would read it, and link everything that reads sections
// and debugging information: 0.16 MB.
func interpreterOf(program io.ReaderAt) (string, error) {
	var header elf.Header64
	if err := binary.Read(io.NewSectionReader(program, 0, int64(binary.Size(header))), binary.LittleEndian, &header); err != nil {
		return "", err
	}
	parts := make([]elf.Prog64, header.Phnum)
	size := int64(binary.Size(parts))
	if err := binary.Read(io.NewSectionReader(program, int64(header.Phoff), size), binary.LittleEndian, parts); err != nil {
		return "", err
	}
	for _, part := range parts {
		if elf.ProgType(part.Type) != elf.PT_INTERP {
			continue
		}
		name, err := io.ReadAll(io.NewSectionReader(program, int64(part.Off), int64(part.Filesz)))
		return string(bytes.TrimRight(name, "\x00")), err
	}
	return "", nil
}
