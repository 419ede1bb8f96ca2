package harness

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ShowTime writes a duration with three significant digits.
func ShowTime(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.3g µs", float64(d)/float64(time.Microsecond))
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
	default:
		return fmt.Sprintf("%.3g s", d.Seconds())
	}
}

// ShowMiB formats bytes in MiB.
func ShowMiB(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// The lines around a table in a document.
const (
	TableBegin = "<!-- make bench writes from here -->"
	TableEnd   = "<!-- to here -->"
)

// ReplaceBetweenMarkers replaces the text between the markers of a document.
func ReplaceBetweenMarkers(path, table string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(text), TableBegin)
	_, after, ends := strings.Cut(rest, TableEnd)
	if !begins || !ends {
		return fmt.Errorf("%s has no place for the table: it needs the lines %q and %q", path, TableBegin, TableEnd)
	}
	text = []byte(before + TableBegin + "\n\n" + table + "\n" + TableEnd + after)
	return os.WriteFile(path, text, 0o644)
}

// MeasuredOn returns when and on which machine.
func MeasuredOn() string {
	var name unix.Utsname
	_ = unix.Uname(&name) // an empty release says as much as the error
	return fmt.Sprintf("%s, %s, %d CPUs (%s), Linux %s.", time.Now().UTC().Format("2006-01-02 15:04 UTC"),
		runtime.Version(), runtime.NumCPU(), processorName(), unix.ByteSliceToString(name.Release[:]))
}

func processorName() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for l := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
