package leakcheck

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// descriptors maps the open descriptors of this process to their targets, without those of the
// runtime, which opens its poller when first needed.
func descriptors() map[string]string {
	found := map[string]string{}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return found
	}
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join("/proc/self/fd", entry.Name()))
		if err != nil || isRuntimeDescriptor(target) || isTestingDescriptor(target) {
			continue // the descriptor of the directory is closed by now
		}
		found[entry.Name()] = target
	}
	return found
}

func isRuntimeDescriptor(target string) bool {
	return strings.HasPrefix(target, "anon_inode:[eventpoll]") || strings.HasPrefix(target, "anon_inode:[eventfd]")
}

// isTestingDescriptor reports whether a descriptor is a profile that package testing opens during
// the run and leaves open.
func isTestingDescriptor(target string) bool {
	for _, name := range []string{"test.cpuprofile", "test.trace", "test.testlogfile"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" && filepath.Base(f.Value.String()) == filepath.Base(target) {
			return true
		}
	}
	return false
}

// children maps the PIDs of the children of this process, zombies included, to a description.
func children() map[string]string {
	found := map[string]string{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat") // not all kernels have /proc/PID/task/TID/children
	if err != nil {
		return found
	}
	own := strconv.Itoa(os.Getpid())
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended
		}
		// The command name before it may contain any character.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) > 1 && fields[1] == own {
			pid := filepath.Base(filepath.Dir(stat))
			found[pid] = describeProcess(pid, fields[0])
		}
	}
	return found
}

func describeProcess(pid, state string) string {
	command, _ := os.ReadFile("/proc/" + pid + "/cmdline")
	return fmt.Sprintf("state %s: %s", state, strings.ReplaceAll(string(command), "\x00", " "))
}

// added lists the entries of now that are not in before.
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

// freshTempDir creates a directory and points TMPDIR at it.
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
