package bench

import (
	"context"
	"fmt"
	"os"
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
	{"spawn", measureSpawn},
	{"spawn-jsonrpc", measureSpawnJSON},
	{"spawn-rate", measureSpawnRate},
	{"spawn-rate-jsonrpc", measureSpawnRateJSON},
	{"tree", measureTree},
	{"sandboxed-spawn", measureSandboxedSpawn},
	{"sandboxed-files", measureSandboxedFiles},
	{"output", measureOutput},
	{"output-jsonrpc", measureOutputJSON},
	{"terminal", measureTerminal},
	{"terminal-jsonrpc", measureTerminalJSON},
	{"small-request", measureSmallRequest},
	{"small-request-jsonrpc", measureSmallRequestJSON},
	{"read-file", measureReadFile},
	{"read-file-jsonrpc", measureReadFileJSON},
	{"read-file-http", measureReadFileHTTP},
	{"write-file", measureWriteFile},
	{"directory", measureDirectory},
	{"directory-jsonrpc", measureDirectoryJSON},
	{"idle", measureIdle},
	{"idle-jsonrpc", measureIdleJSON},
	{"finished", measureFinished},
	{"stalled", measureStalled},
	{"stalled-jsonrpc", measureStalledJSON},
	{"first-answer", measureFirstAnswer},
	{"relay", measureRelay},
	{"forward", measureForward},
}

// BenchmarkBudgets measures every row once and, if EXECWIRE_BENCH_TABLE names a file, writes
// the table into it. A slow figure is no failure: the table states which budgets are met. Raw
// figures go to standard output, and so does the table without a file.
func BenchmarkBudgets(b *testing.B) {
	lines := make([][]line, len(budgetRows))
	whole := true
	for i, row := range budgetRows {
		measured := b.Run(row.name, func(b *testing.B) {
			lines[i] = row.measure(&bench{TB: b, ctx: b.Context(), sizes: fullSizes})
			b.ReportMetric(float64(b.Elapsed())/float64(b.N), "ns/row")
		})
		whole = whole && measured && lines[i] != nil
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
// It fails for missing bytes, wrong exits or invalid figures, not for bad ones.
func TestBudgets_Smoke(t *testing.T) {
	harness.Slow(t)
	for _, row := range budgetRows {
		t.Run(row.name, func(t *testing.T) {
			lines := row.measure(&bench{TB: t, ctx: t.Context(), sizes: smokeSizes})
			if len(lines) == 0 {
				t.Error("there are no figures")
			}
			for _, l := range lines {
				if l.what == "" || l.ours == "" || l.budget == "" {
					t.Errorf("a line is incomplete: %+v", l)
				}
			}
		})
	}
}

// benchSizes has the sizes of the measurements.
type benchSizes struct {
	spawns       int // one after another, of each kind
	rateRounds   int
	rateSpawns   int // in one round
	outputRounds int
	outputBytes  int64 // in one round
	echoes       int
	requests     int
	terminations int
	treeRounds   int
	starts       int // of the server
	connections  int // idle
	processes    int // idle
	idle         time.Duration
	finished     int           // processes
	retention    time.Duration // of finished processes
	stalledBytes int64
	fileBytes    []int64
	fileRounds   int
	entries      int // of a directory
	listings     int // of it
}

var fullSizes = benchSizes{
	spawns: 600, rateRounds: 7, rateSpawns: 1000,
	outputRounds: 7, outputBytes: 1 << 30, echoes: 5000,
	requests: 4000, terminations: 50, treeRounds: 5, starts: 40,
	connections: 200, processes: 500, idle: 5 * time.Second,
	finished: 200, retention: 2 * time.Second, stalledBytes: 512 << 20,
	fileBytes: []int64{64 << 20, 512 << 20}, fileRounds: 7, entries: 10_000, listings: 100,
}

var smokeSizes = benchSizes{
	spawns: 2, rateRounds: 1, rateSpawns: 65,
	outputRounds: 1, outputBytes: 4 << 20, echoes: 10,
	requests: 20, terminations: 2, treeRounds: 1, starts: 1,
	connections: 3, processes: 3, idle: 50 * time.Millisecond,
	finished: 3, retention: 100 * time.Millisecond, stalledBytes: 4 << 20,
	fileBytes: []int64{5<<20 + 1, 6 << 20}, fileRounds: 1, entries: 1001, listings: 2,
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
