package syslimit

import (
	"os"
	"strconv"
	"strings"
)

// Memory returns how many bytes of memory this program and all processes in its control groups may
// have: the lowest limit of a control group, or the memory of the machine if that is less. The
// source is the file that contains it. 0 is unknown.
func (s System) Memory() (bytes uint64, source string) {
	bytes, source = s.machineMemory()
	if limit, file, found := s.lowestLimit("memory", "memory.max", "memory.limit_in_bytes"); found && (bytes == 0 || limit < bytes) {
		return limit, file
	}
	return bytes, source
}

func (s System) machineMemory() (bytes uint64, source string) {
	source = s.path("proc/meminfo")
	text, err := os.ReadFile(source)
	if err != nil {
		return 0, ""
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) >= 2 && fields[0] == "MemTotal:" {
			if kib, err := strconv.ParseUint(fields[1], 10, 54); err == nil {
				return kib << 10, source
			}
		}
	}
	return 0, ""
}
