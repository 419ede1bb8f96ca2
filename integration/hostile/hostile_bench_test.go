package hostile

import (
	"encoding/base64"
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// hostileRow has the latencies of a neighbour during one attack, and the cost for the server.
type hostileRow struct {
	name    string
	request harness.Samples[time.Duration] // fs/getMetadata
	large   harness.Samples[time.Duration] // fs/writeFile of largeBytes
	run     harness.Samples[time.Duration] // process/start to process/closed
	end     harness.Samples[time.Duration] // process/terminate
	peak    int64                          // the most resident memory, in bytes
	waves   int
}

// attackTime is how long each attack lasts in the benchmark.
const attackTime = time.Second

// BenchmarkHostile measures the latencies of a neighbour during each attack, wave after wave,
// and without attacks. If EXECWIRE_HOSTILE_TABLE names a file, the table is written into it.
func BenchmarkHostile(b *testing.B) {
	alone := attack{name: "none", wave: func(*attackWave) { time.Sleep(10 * time.Millisecond) }}
	var rows []hostileRow
	for _, one := range append([]attack{alone}, attacks()...) {
		b.Run(strings.ReplaceAll(one.name, " ", "-"), func(b *testing.B) {
			rows = append(rows, measureAttack(b, one, attackTime))
		})
	}
	path := os.Getenv("EXECWIRE_HOSTILE_TABLE")
	if path == "" || b.Failed() {
		return
	}
	if err := harness.ReplaceBetweenMarkers(path, harness.MeasuredOn()+"\n\n"+hostileTable(rows)); err != nil {
		b.Fatal(err)
	}
}

// measureAttack lets a neighbour work for a time during successive waves of an attack.
func measureAttack(b testing.TB, one attack, howLong time.Duration) hostileRow {
	// The sessions of a wave are not to be in the way of the next.
	server := harness.StartSocketServer(b, append(one.environment(), "EXECWIRE_DEFAULT_GRACE=0s")...)
	c := harness.DialRPC(b, server.URLs[harness.JSONRPC])
	row := hostileRow{name: one.name}
	path := b.TempDir()
	written := fmt.Sprintf(`{"path":%q,"dataBase64":%q}`, filepath.Join(path, "large"), base64.StdEncoding.EncodeToString(make([]byte, largeBytes)))
	over, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-over:
				return
			default:
			}
			a := &attackWave{TB: b, address: harness.AddressOf(server.URLs[harness.JSONRPC]), scale: benchScale, before: row.waves}
			a.begin(one.wave)
			row.waves++
		}
	}()
	for begun := time.Now(); time.Since(begun) < howLong; {
		for range 10 {
			row.request = append(row.request, harness.Timed(func() { c.Call("fs/getMetadata", fmt.Sprintf(`{"path":%q}`, path)) }))
		}
		row.large = append(row.large, harness.Timed(func() { c.Call("fs/writeFile", written) }))
		row.run = append(row.run, harness.Timed(func() { harness.StartTrue(b, c) }))
		id := harness.ProcessID()
		c.Call("process/start", harness.StartParams(id, `,"tty":false`, "/bin/sleep", "600"))
		row.end = append(row.end, harness.Timed(func() {
			if got := c.Call("process/terminate", fmt.Sprintf(`{"processId":%q}`, id)); string(got) != `{"running":true}` {
				b.Errorf("terminate was answered %s", got)
			}
		}))
	}
	close(over)
	<-stopped
	row.peak = server.Peak()
	harness.Raw(b, "%s: %d waves, fs/getMetadata p50 %v p99 %v (%d), 300 KB p50 %v p99 %v, start to closed p50 %v p99 %v (%d), terminate p50 %v p99 %v, peak %s", one.name, row.waves,
		row.request.Median(), row.request.Quantile(0.99), len(row.request), row.large.Median(), row.large.Quantile(0.99), row.run.Median(), row.run.Quantile(0.99), len(row.run),
		row.end.Median(), row.end.Quantile(0.99), harness.ShowMiB(row.peak))
	return row
}

// hostileTable writes the rows in Markdown.
func hostileTable(rows []hostileRow) string {
	var b strings.Builder
	b.WriteString("| attack | small request, p50 | p99 | 300 KB message, p50 | p99 | start → closed, p50 | p99 | terminate, p50 | p99 | server's memory, peak |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s ", row.name)
		for _, s := range []harness.Samples[time.Duration]{row.request, row.large, row.run, row.end} {
			fmt.Fprintf(&b, "| %s | %s ", harness.ShowTime(s.Median()), harness.ShowTime(s.Quantile(0.99)))
		}
		fmt.Fprintf(&b, "| %s |\n", harness.ShowMiB(row.peak))
	}
	return b.String()
}

// TestHostileBenchmark_Smoke runs the benchmark with small sizes, so that it keeps working.
func TestHostileBenchmark_Smoke(t *testing.T) {
	harness.Slow(t)
	row := measureAttack(t, frameAttacks[0], time.Millisecond)
	if len(row.request) == 0 || len(row.large) == 0 || len(row.run) == 0 || len(row.end) == 0 || row.peak == 0 || row.waves == 0 {
		t.Errorf("something was not measured: %+v", row)
	}
	if table := hostileTable([]hostileRow{row}); !strings.Contains(table, "| "+frameAttacks[0].name+" | ") {
		t.Errorf("the table is %s", table)
	}
}
