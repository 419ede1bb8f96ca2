package process

import (
	"os"
	"strconv"
	"strings"
)

// members returns the process and every descendant of it that can be found in /proc: by ancestry, and by the session
// that the process began.
func (p *Process) members() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	type lineage struct{ pid, parent, session int }
	var all []lineage
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
		fields := strings.Fields(rest)
		if len(fields) < 4 {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		session, _ := strconv.Atoi(fields[3])
		all = append(all, lineage{pid, parent, session})
	}
	in := map[int]bool{p.pid: true}
	pids := []int{p.pid}
	for grown := true; grown; {
		grown = false
		for _, one := range all {
			if !in[one.pid] && (in[one.parent] || one.session == p.pid) {
				in[one.pid], grown = true, true
				pids = append(pids, one.pid)
			}
		}
	}
	return pids
}
