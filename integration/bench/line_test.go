package bench

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/integration/harness"
)

// figures are those of the rounds of a measurement: seconds, bytes, or a rate.
type figures = harness.Samples[float64]

// line is one line of the table.
type line struct {
	what string
	// floor and ours have one figure for each round, in which they alternated. floor is
	// nil where there is none.
	floor, ours figures
	show        func(float64) string
	budget      budget
	// met is in how many of the runs the budget was met.
	met, runs int
}

// budget limits what compare makes of the figures of a round: their ratio, their
// difference, or ours alone.
type budget struct {
	text    string // "–" if there is no budget
	compare func(floor, ours float64) float64
	show    func(float64) string
	holds   func(median float64) bool
}

func ratio(floor, ours float64) float64 { return ours / floor }

func showRatio(r float64) string { return fmt.Sprintf("%.2f ×", r) }

// atMost is a cost that may be limit times its floor.
func atMost(what string, floor, ours figures, limit float64, show func(float64) string) line {
	return line{what: what, floor: floor, ours: ours, show: show, budget: budget{text: fmt.Sprintf("≤ %v ×", limit),
		compare: ratio, show: showRatio, holds: func(r float64) bool { return r <= limit }}}
}

// atLeast is a rate that must be limit times its floor.
func atLeast(what string, floor, ours figures, limit float64, show func(float64) string) line {
	return line{what: what, floor: floor, ours: ours, show: show, budget: budget{text: fmt.Sprintf("≥ %v ×", limit),
		compare: ratio, show: showRatio, holds: func(r float64) bool { return r >= limit }}}
}

// atMostMore is a cost that may be limit more than its floor.
func atMostMore(what string, floor, ours figures, limit float64, show func(float64) string) line {
	signed := func(more float64) string {
		if more < 0 {
			return "− " + show(-more)
		}
		return "+ " + show(more)
	}
	return line{what: what, floor: floor, ours: ours, show: show, budget: budget{text: "≤ + " + show(limit),
		compare: func(floor, ours float64) float64 { return ours - floor }, show: signed,
		holds: func(more float64) bool { return more <= limit }}}
}

// within is a cost with an absolute limit. floor is only shown; nil if there is none.
func within(what string, floor, ours figures, limit float64, show func(float64) string) line {
	return line{what: what, floor: floor, ours: ours, show: show, budget: budget{text: "≤ " + show(limit),
		compare: func(_, ours float64) float64 { return ours }, show: show,
		holds: func(figure float64) bool { return figure <= limit }}}
}

// rounds returns what is compared, for each round.
func (l line) rounds() figures {
	compared := make(figures, len(l.ours))
	for i, ours := range l.ours {
		floor := math.NaN()
		if l.floor != nil {
			floor = l.floor[i]
		}
		compared[i] = l.budget.compare(floor, ours)
	}
	return compared
}

// columns are the cells of a line: medians, and the least and greatest round.
func (l line) columns() []string {
	compared := l.rounds()
	spread := "–"
	if len(compared) > 1 {
		spread = l.budget.show(slices.Min(compared)) + " to " + l.budget.show(slices.Max(compared))
	}
	floor := "–"
	if l.floor != nil {
		floor = l.show(l.floor.Median())
	}
	met := "**no**"
	if 2*l.met > l.runs {
		met = "yes"
	}
	if l.runs > 1 {
		met += fmt.Sprintf(", %d of %d", l.met, l.runs)
	}
	return []string{l.what, floor, l.show(l.ours.Median()), l.budget.show(compared.Median()), spread, l.budget.text, met}
}

// joined makes one list of the lines of several runs: with the rounds of all of them, and
// in how many the budget was met.
func joined(runs [][]line) []line {
	all := slices.Clone(runs[0])
	for i := range all {
		all[i].floor, all[i].ours = nil, nil
		for _, run := range runs {
			all[i].floor, all[i].ours = append(all[i].floor, run[i].floor...), append(all[i].ours, run[i].ours...)
			all[i].runs++
			if run[i].budget.holds(run[i].rounds().Median()) {
				all[i].met++
			}
		}
	}
	return all
}

func showSeconds(s float64) string { return harness.ShowTime(time.Duration(s * 1e9)) }

func showRate(r float64) string { return fmt.Sprintf("%.0f /s", r) }

func showMiBRate(r float64) string { return fmt.Sprintf("%.0f MiB/s", r) }

func showCPU(s float64) string { return fmt.Sprintf("%.2f s/GiB", s) }

func showKiB(n float64) string { return fmt.Sprintf("%.1f KiB", n/(1<<10)) }

func showMiB(n float64) string { return fmt.Sprintf("%.1f MiB", n/(1<<20)) }

func showCount(n float64) string { return fmt.Sprintf("%.2f", n) }

// updateTable replaces the table of a document.
func updateTable(path string, lines []line) error {
	return harness.ReplaceBetweenMarkers(path, harness.MeasuredOn()+"\n\n"+table(lines))
}

// table writes lines in Markdown.
func table(lines []line) string {
	var b strings.Builder
	b.WriteString("| what | floor | ours | compared | rounds | budget | met |\n|---|---|---|---|---|---|---|\n")
	for _, l := range lines {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(l.columns(), " | "))
	}
	return b.String()
}

func TestTable_ReplacesBetweenItsMarkers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perf.md")
	if err := os.WriteFile(path, []byte("above\n"+harness.TableBegin+"\nold\n"+harness.TableEnd+"\nbelow\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := joined([][]line{{
		atMost("a", figures{0.001, 0.001, 0.002}, figures{0.001, 0.003, 0.004}, 1.4, showSeconds),
		atLeast("b", figures{100}, figures{90}, 0.75, showRate),
		within("c", nil, figures{1 << 20}, 2<<20, showMiB),
		atMostMore("d", figures{0.002}, figures{0.001}, 0.0005, showSeconds),
	}})
	if err := updateTable(path, lines); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"above\n" + harness.TableBegin, harness.TableEnd + "\nbelow\n",
		"\n| a | 1 ms | 3 ms | 2.00 × | 1.00 × to 3.00 × | ≤ 1.4 × | **no** |\n" +
			"| b | 100 /s | 90 /s | 0.90 × | – | ≥ 0.75 × | yes |\n" +
			"| c | – | 1.0 MiB | 1.0 MiB | – | ≤ 2.0 MiB | yes |\n" +
			"| d | 2 ms | 1 ms | − 1 ms | – | ≤ + 500 µs | yes |\n",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("the document lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(string(got), "old") {
		t.Error("the old table is still there")
	}
}

func TestTable_SeveralRuns_CountsThoseThatMetTheBudget(t *testing.T) {
	run := func(ours float64) []line {
		return []line{atMost("a", figures{1}, figures{ours}, 1.5, showRatio)}
	}
	for _, c := range []struct {
		runs [][]line
		want string
	}{
		{[][]line{run(1), run(2), run(1.5)}, "| 1.50 × | 1.00 × to 2.00 × | ≤ 1.5 × | yes, 2 of 3 |"},
		{[][]line{run(1), run(2)}, "| **no**, 1 of 2 |"},
	} {
		if got := table(joined(c.runs)); !strings.Contains(got, c.want) {
			t.Errorf("the table lacks %q:\n%s", c.want, got)
		}
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

func TestQuantiles(t *testing.T) {
	s := figures{5, 1, 4, 2, 3}
	for q, want := range map[float64]float64{0: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := s.Quantile(q); got != want {
			t.Errorf("quantile %v of %v is %v, want %v", q, s, got, want)
		}
	}
	if s[0] != 5 {
		t.Error("quantile changed the samples")
	}
}
