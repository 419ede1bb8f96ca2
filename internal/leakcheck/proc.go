package leakcheck

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// descriptors maps this process's open descriptors to their targets. The runtime's own are left out: it opens its
// poller when first needed.
func descriptors() map[string]string {
	found := map[string]string{}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return found
	}
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join("/proc/self/fd", entry.Name()))
		if err != nil || isRuntimes(target) || isTestings(target) {
			continue // the directory's own descriptor is closed by now
		}
		found[entry.Name()] = target
	}
	return found
}

func isRuntimes(target string) bool {
	return strings.HasPrefix(target, "anon_inode:[eventpoll]") || strings.HasPrefix(target, "anon_inode:[eventfd]")
}

// isTestings tells the profiles that package testing opens during the run and leaves open.
func isTestings(target string) bool {
	for _, name := range []string{"test.cpuprofile", "test.trace", "test.testlogfile"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" && filepath.Base(f.Value.String()) == filepath.Base(target) {
			return true
		}
	}
	return false
}

// children maps the pids of this process's children, zombies included, to a description.
func children() map[string]string {
	found := map[string]string{}
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return found
	}
	for _, list := range lists {
		pids, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended; its children are listed with another one
		}
		for pid := range strings.FieldsSeq(string(pids)) {
			found[pid] = describeProcess(pid)
		}
	}
	return found
}

func describeProcess(pid string) string {
	command, _ := os.ReadFile("/proc/" + pid + "/cmdline")
	stat, _ := os.ReadFile("/proc/" + pid + "/stat")
	state := "?"
	if _, rest, ok := strings.Cut(string(stat), ") "); ok && rest != "" {
		state = rest[:1]
	}
	return fmt.Sprintf("state %s: %s", state, strings.ReplaceAll(string(command), "\x00", " "))
}

// added lists what is in now and was not in before.
func added(before, now map[string]string) []string {
	var left []string
	for id, what := range now {
		if was, ok := before[id]; !ok || was != what {
			left = append(left, id+" "+what)
		}
	}
	sort.Strings(left)
	return left
}

// freshTempDir makes a directory and points TMPDIR at it.
func freshTempDir() (string, error) {
	dir, err := os.MkdirTemp("", "leakcheck-")
	if err != nil {
		return "", err
	}
	return dir, os.Setenv("TMPDIR", dir)
}

func leftoverFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("failed to list the temporary directory: %w", err)
	}
	if len(entries) == 0 {
		return nil
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return fmt.Errorf("temporary file left: %s", strings.Join(names, "\n\t"))
}
