package bench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// budgetRow measures something that has a budget, and its floor.
type budgetRow struct {
	name    string
	measure func(*bench) []line
}

// budgetRows lists the rows of the table in docs/perf.md, in its order.
var budgetRows = []budgetRow{
	{"start", measureStart},
	{"rate", measureRate},
	{"sandboxed-start", measureSandboxedStart},
	{"sandboxed-files", measureSandboxedFiles},
	{"output", measureOutput},
	{"output-jsonrpc", measureOutputJSON},
	{"terminal", measureTerminal},
	{"small-request", measureSmallRequest},
	{"small-request-jsonrpc", measureSmallRequestJSON},
	{"terminate", measureTerminate},
	{"read-file", measureReadFile},
	{"read-file-jsonrpc", measureReadFileJSON},
	{"read-file-http", measureReadFileHTTP},
	{"directory", measureDirectory},
	{"relay", measureRelay},
	{"forward", measureForward},
	{"memory", measureMemory},
	{"growth", measureGrowth},
	{"finished", measureFinished},
	{"stalled", measureStalled},
	{"stalled-jsonrpc", measureStalledJSON},
	{"first-answer", measureFirstAnswer},
}

// BenchmarkBudgets measures every row and, if EXECWIRE_BENCH_TABLE names a file, writes the
// table into it; with EXECWIRE_BENCH_RUNS so many times, and a budget is met if it is in most
// of them. A slow figure is no failure: the table states which budgets are met. Raw figures go
// to standard output, and so does the table without a file.
func BenchmarkBudgets(b *testing.B) {
	runs, _ := strconv.Atoi(os.Getenv("EXECWIRE_BENCH_RUNS")) // unset is 1
	measured := make([][][]line, len(budgetRows))             // by row and run
	for run := range max(runs, 1) {
		for i, row := range budgetRows {
			name := row.name
			if run > 0 {
				name += fmt.Sprintf("-run-%d", run+1) // not #01, which is no part of a path in a URL
			}
			b.Run(name, func(b *testing.B) {
				measured[i] = append(measured[i], row.measure(&bench{TB: b, ctx: b.Context(), sizes: fullSizes}))
				b.ReportMetric(float64(b.Elapsed())/float64(b.N), "ns/row")
			})
		}
	}
	var lines []line
	whole := true
	for _, row := range measured {
		if len(row) == max(runs, 1) {
			lines = append(lines, joined(row)...)
		} else {
			whole = false
		}
	}
	path := os.Getenv("EXECWIRE_BENCH_TABLE")
	if path == "" {
		fmt.Print(table(lines))
		return
	}
	if !whole {
		b.Fatalf("%s was left alone: a row failed or was not asked for", path)
	}
	if err := updateTable(path, lines); err != nil {
		b.Fatal(err)
	}
}

// TestBudgets_Smoke runs every row once with small sizes, so that the benchmarks keep working.
// It fails for missing bytes, wrong exits or missing figures, not for bad ones.
func TestBudgets_Smoke(t *testing.T) {
	harness.Slow(t)
	for _, row := range budgetRows {
		t.Run(row.name, func(t *testing.T) {
			lines := row.measure(&bench{TB: t, ctx: t.Context(), sizes: smokeSizes})
			if len(lines) == 0 {
				t.Error("there are no figures")
			}
			for _, l := range lines {
				if l.what == "" || len(l.ours) == 0 || l.floor != nil && len(l.floor) != len(l.ours) {
					t.Errorf("a line is incomplete: %+v", l)
				}
			}
		})
	}
}

// benchSizes has the sizes of the measurements.
type benchSizes struct {
	rounds       int
	spawns       int   // one after another, of each kind, in a round
	rateSpawns   int   // in a round
	outputBytes  int64 // in a round
	echoes       int   // in a round
	requests     int   // in a round
	terminations int   // in a round
	others       int   // that are killed meanwhile
	starts       int   // of the server, in a round
	connections  int   // idle
	processes    int   // idle
	growth       []int // levels
	idle         time.Duration
	finished     int           // processes
	retention    time.Duration // of finished processes
	stalledBytes int64
	fileBytes    []int64
	entries      int // of a directory
	listings     int // of it, in a round
}

var fullSizes = benchSizes{
	rounds: 7, spawns: 80, rateSpawns: 500, outputBytes: 512 << 20, echoes: 600,
	requests: 500, terminations: 5, others: 100, starts: 6,
	connections: 200, processes: 500, growth: []int{1, 10, 100, 1000, 10_000}, idle: 5 * time.Second,
	finished: 200, retention: 10 * time.Second, stalledBytes: 512 << 20,
	fileBytes: []int64{64 << 20, 512 << 20}, entries: 10_000, listings: 10,
}

var smokeSizes = benchSizes{
	rounds: 1, spawns: 2, rateSpawns: 65, outputBytes: 4 << 20, echoes: 10,
	requests: 20, terminations: 2, others: 5, starts: 1,
	connections: 3, processes: 3, growth: []int{1, 2, 3, 4, 5}, idle: 50 * time.Millisecond,
	finished: 3, retention: 100 * time.Millisecond, stalledBytes: 4 << 20,
	fileBytes: []int64{5<<20 + 1, 6 << 20}, entries: 1001, listings: 2,
}

// bench is one row being measured.
type bench struct {
	testing.TB
	ctx   context.Context
	sizes benchSizes
}

// raw reports a measured figure. Benchmarks print it, because the framework truncates their
// logs.
func (b *bench) raw(format string, args ...any) {
	b.Helper()
	harness.Raw(b.TB, format, args...)
}

// way is one of the things that a row measures.
type way struct {
	name string
	time func() time.Duration
}

// timed is the way whose whole time counts.
func timed(name string, do func()) way {
	return way{name, func() time.Duration { return harness.Timed(do) }}
}

// alternate does the ways in turn, after one time that does not count, n times in each round.
// It returns a quantile of the times of each round, for each way.
func (b *bench) alternate(n int, quantile float64, ways ...way) []figures {
	b.Helper()
	result := make([]figures, len(ways))
	all := make([]harness.Samples[time.Duration], len(ways))
	for _, w := range ways {
		w.time()
	}
	for range b.sizes.rounds {
		round := make([]harness.Samples[time.Duration], len(ways))
		for range n {
			for i, w := range ways {
				round[i] = append(round[i], w.time())
			}
		}
		for i := range ways {
			result[i] = append(result[i], round[i].Quantile(quantile).Seconds())
			all[i] = append(all[i], round[i]...)
		}
	}
	for i, w := range ways {
		b.rawTimes(w.name, all[i])
	}
	return result
}

// rawTimes reports the distribution of some times.
func (b *bench) rawTimes(what string, s harness.Samples[time.Duration]) {
	b.Helper()
	b.raw("%s: p10 %s, p50 %s, p90 %s, p99 %s (%d)", what, harness.ShowTime(s.Quantile(0.1)), harness.ShowTime(s.Median()),
		harness.ShowTime(s.Quantile(0.9)), harness.ShowTime(s.Quantile(0.99)), len(s))
}

// transfer is one way to carry bytes.
type transfer struct {
	name string
	peer *harness.Peer // whose CPU counts
	do   func()
}

// transferred are the rounds of a transfer.
type transferred struct {
	rate figures // MiB/s
	cpu  figures // s/GiB
}

// carry does the transfers of n bytes in turn, once in each round.
func (b *bench) carry(n int64, transfers ...transfer) []transferred {
	b.Helper()
	result := make([]transferred, len(transfers))
	for range b.sizes.rounds {
		for i, t := range transfers {
			before := t.peer.CPU()
			took := harness.Timed(t.do)
			spent := t.peer.CPU() - before
			result[i].rate = append(result[i].rate, float64(n)/(1<<20)/took.Seconds())
			result[i].cpu = append(result[i].cpu, spent.Seconds()/(float64(n)/(1<<30)))
		}
	}
	for i, t := range transfers {
		b.raw("%s: %.0f MiB/s, CPU %.2f s/GiB", t.name, result[i].rate, result[i].cpu)
	}
	return result
}

// benchCommand starts argv like all rows do: with its own environment, in /.
func benchCommand(argv ...string) *execwirev1.StartProcessRequest {
	return &execwirev1.StartProcessRequest{Command: &execwirev1.ProcessCommand{
		Command: &execwirev1.ProcessCommand_Direct{Direct: &execwirev1.DirectCommand{
			Argv: argv, WorkingDirectory: "/",
			Env: map[string]string{"PATH": "/usr/bin:/bin", "GORACE": "atexit_sleep_ms=0"}}}}}
}

// run runs a process to a successful end.
func (b *bench) run(c *client.Client, options client.RunOptions) client.Exit {
	b.Helper()
	exit, err := c.Run(b.ctx, options)
	if err != nil || exit.ShellCode() != 0 || exit.DroppedBytes != 0 {
		// Not Fatal: runs go on in several goroutines.
		b.Errorf("a process ended with %+v: %v", exit, err)
	}
	return exit
}
