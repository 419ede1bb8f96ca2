package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/integration/harness"
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

func showKiB(n int64) string { return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10)) }

// updateTable replaces the table of a document.
func updateTable(path string, rows [][]line) error {
	return harness.ReplaceBetweenMarkers(path, harness.MeasuredOn()+"\n\n"+table(rows))
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

func TestTable_ReplacesBetweenItsMarkers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perf.md")
	if err := os.WriteFile(path, []byte("above\n"+harness.TableBegin+"\nold\n"+harness.TableEnd+"\nbelow\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rows := [][]line{
		{atMost("a", time.Millisecond, 2*time.Millisecond, 1.4, harness.ShowTime)},
		{atLeast("b", 100, 90, 0.75, "/s"), within("c", int64(1)<<20, 2<<20, harness.ShowMiB)},
	}
	if err := updateTable(path, rows); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"above\n" + harness.TableBegin, harness.TableEnd + "\nbelow\n",
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

func TestTable_DocumentWithoutMarkers_IsUnchanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perf.md")
	text := "above\n" + harness.TableEnd + "\n" + harness.TableBegin + "\nbelow\n"
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
