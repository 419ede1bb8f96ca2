package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// line is one line of the table: a figure, its floor in the same run, and what
// it may be. Floor and ratio are empty where there is none.
type line struct {
	what, floor, ours, ratio, budget string
	met                              bool
}

// atMost is a figure that may be limit times its floor.
func atMost[T ~int64](what string, floor, ours T, limit float64, format func(T) string) line {
	ratio := float64(ours) / float64(floor)
	return line{what: what, floor: format(floor), ours: format(ours),
		ratio: fmt.Sprintf("%.2f ×", ratio), budget: fmt.Sprintf("≤ %v ×", limit), met: ratio <= limit}
}

// atLeast is a rate that must be limit times its floor.
func atLeast(what string, floor, ours, limit float64, unit string) line {
	ratio := ours / floor
	return line{what: what, floor: fmt.Sprintf("%.0f %s", floor, unit), ours: fmt.Sprintf("%.0f %s", ours, unit),
		ratio: fmt.Sprintf("%.2f ×", ratio), budget: fmt.Sprintf("≥ %v ×", limit), met: ratio >= limit}
}

// within is a figure with an absolute limit.
func within[T ~int64](what string, ours, limit T, format func(T) string) line {
	return line{what: what, ours: format(ours), budget: "≤ " + format(limit), met: ours <= limit}
}

// noBudget is the budget of a figure that is reported and has none.
const noBudget = "–"

// withoutBudget is a line that is only reported.
func withoutBudget(l line) line {
	l.budget = noBudget
	return l
}

// showTime writes a duration with three significant digits.
func showTime(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.3g µs", float64(d)/float64(time.Microsecond))
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
	default:
		return fmt.Sprintf("%.3g s", d.Seconds())
	}
}

func showKiB(n int64) string { return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10)) }
func showMiB(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

const (
	tableBegin = "<!-- make bench writes from here -->"
	tableEnd   = "<!-- to here -->"
)

// updateTable replaces the table of a document.
func updateTable(path string, rows [][]line) error {
	return replaceBetweenMarkers(path, measuredOn()+"\n\n"+table(rows))
}

// replaceBetweenMarkers replaces what is between the markers of a document.
func replaceBetweenMarkers(path, table string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(text), tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		return fmt.Errorf("%s has no place for the table: it needs the lines %q and %q", path, tableBegin, tableEnd)
	}
	text = []byte(before + tableBegin + "\n\n" + table + "\n" + tableEnd + after)
	return os.WriteFile(path, text, 0o644)
}

// table writes the rows in Markdown.
func table(rows [][]line) string {
	var b strings.Builder
	b.WriteString("| what | floor | ours | ratio | budget | met |\n|---|---|---|---|---|---|\n")
	for _, lines := range rows {
		for _, l := range lines {
			met := "**no**"
			switch {
			case l.budget == noBudget:
				met = noBudget
			case l.met:
				met = "yes"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", l.what, orDash(l.floor), l.ours, orDash(l.ratio), l.budget, met)
		}
	}
	return b.String()
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// measuredOn says when and where.
func measuredOn() string {
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

func TestTheTableGoesBetweenItsMarkers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perf.md")
	if err := os.WriteFile(path, []byte("above\n"+tableBegin+"\nold\n"+tableEnd+"\nbelow\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rows := [][]line{
		{atMost("a", time.Millisecond, 2*time.Millisecond, 1.4, showTime)},
		{atLeast("b", 100, 90, 0.75, "/s"), within("c", int64(1)<<20, 2<<20, showMiB)},
	}
	if err := updateTable(path, rows); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"above\n" + tableBegin, tableEnd + "\nbelow\n",
		"\n| a | 1 ms | 2 ms | 2.00 × | ≤ 1.4 × | **no** |\n" +
			"| b | 100 /s | 90 /s | 0.90 × | ≥ 0.75 × | yes |\n" +
			"| c | – | 1.0 MiB | – | ≤ 2.0 MiB | yes |\n",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("the document lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(string(got), "old") {
		t.Error("the old table is still there")
	}
}

func TestADocumentWithoutMarkersIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perf.md")
	text := "above\n" + tableEnd + "\n" + tableBegin + "\nbelow\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := updateTable(path, nil); err == nil {
		t.Error("there was no error")
	}
	if got, _ := os.ReadFile(path); string(got) != text {
		t.Errorf("the document became %q", got)
	}
}
