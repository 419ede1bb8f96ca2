package integration

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// hostileRow is what a neighbour sees of one attack, and what that costs the
// server.
type hostileRow struct {
	name    string
	request samples[time.Duration] // fs/getMetadata
	large   samples[time.Duration] // fs/writeFile of largeBytes
	run     samples[time.Duration] // process/start to process/closed
	end     samples[time.Duration] // process/terminate
	peak    int64                  // the most resident memory, in bytes
	waves   int
}

// attackTime is how long each attack lasts in the benchmark.
const attackTime = time.Second

// BenchmarkHostile measures what a neighbour waits for while each attack goes on,
// wave after wave, beside a server that nobody attacks. If EXECWIRE_HOSTILE_TABLE
// names a file, the table is put into it.
func BenchmarkHostile(b *testing.B) {
	alone := attack{name: "nobody", wave: func(*assault) { time.Sleep(10 * time.Millisecond) }}
	var rows []hostileRow
	for _, one := range append([]attack{alone}, attacks()...) {
		b.Run(strings.ReplaceAll(one.name, " ", "-"), func(b *testing.B) {
			rows = append(rows, measureAttack(&bench{TB: b, ctx: b.Context(), sizes: fullSizes}, one, attackTime))
		})
	}
	path := os.Getenv("EXECWIRE_HOSTILE_TABLE")
	if path == "" || b.Failed() {
		return
	}
	if err := replaceBetweenMarkers(path, measuredOn()+"\n\n"+hostileTable(rows)); err != nil {
		b.Fatal(err)
	}
}

// measureAttack has a neighbour work for a time while waves of an attack follow
// each other.
func measureAttack(b *bench, one attack, howLong time.Duration) hostileRow {
	// The sessions of a wave are not to be in the way of the next.
	server := b.startSocketServer(append(one.environment(), "EXECWIRE_DEFAULT_GRACE=0s")...)
	c := b.dialRPC(server.urls[jsonRPC])
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
			a := &assault{TB: b, address: addressIn(server.urls[jsonRPC]), scale: benchScale, before: row.waves}
			a.begin(one.wave)
			row.waves++
		}
	}()
	for begun := time.Now(); time.Since(begun) < howLong; {
		for range 10 {
			row.request = append(row.request, timed(func() { c.call("fs/getMetadata", fmt.Sprintf(`{"path":%q}`, path)) }))
		}
		row.large = append(row.large, timed(func() { c.call("fs/writeFile", written) }))
		row.run = append(row.run, timed(func() { b.startTrue(c) }))
		id := processID()
		c.call("process/start", startParams(id, `,"tty":false`, "/bin/sleep", "600"))
		row.end = append(row.end, timed(func() {
			if got := c.call("process/terminate", fmt.Sprintf(`{"processId":%q}`, id)); string(got) != `{"running":true}` {
				b.Errorf("terminate was answered %s", got)
			}
		}))
	}
	close(over)
	<-stopped
	row.peak = server.peak()
	b.raw("%s: %d waves, fs/getMetadata p50 %v p99 %v (%d), 300 KB p50 %v p99 %v, start to closed p50 %v p99 %v (%d), terminate p50 %v p99 %v, peak %s", one.name, row.waves,
		row.request.median(), row.request.quantile(0.99), len(row.request), row.large.median(), row.large.quantile(0.99), row.run.median(), row.run.quantile(0.99), len(row.run),
		row.end.median(), row.end.quantile(0.99), showMiB(row.peak))
	return row
}

// hostileTable writes the rows in Markdown.
func hostileTable(rows []hostileRow) string {
	var b strings.Builder
	b.WriteString("| attack | small request, p50 | p99 | 300 KB message, p50 | p99 | start → closed, p50 | p99 | terminate, p50 | p99 | server's memory, peak |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s ", row.name)
		for _, s := range []samples[time.Duration]{row.request, row.large, row.run, row.end} {
			fmt.Fprintf(&b, "| %s | %s ", showTime(s.median()), showTime(s.quantile(0.99)))
		}
		fmt.Fprintf(&b, "| %s |\n", showMiB(row.peak))
	}
	return b.String()
}

// TestHostileAttacksMeasure runs the benchmark in small, so that it keeps
// working.
func TestHostileAttacksMeasure(t *testing.T) {
	slow(t)
	row := measureAttack(&bench{TB: t, ctx: t.Context(), sizes: smokeSizes}, frameAttacks[0], time.Millisecond)
	if len(row.request) == 0 || len(row.large) == 0 || len(row.run) == 0 || len(row.end) == 0 || row.peak == 0 || row.waves == 0 {
		t.Errorf("something was not measured: %+v", row)
	}
	if table := hostileTable([]hostileRow{row}); !strings.Contains(table, "| "+frameAttacks[0].name+" | ") {
		t.Errorf("the table is %s", table)
	}
}
