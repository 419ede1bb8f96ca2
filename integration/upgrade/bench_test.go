package upgrade

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/execwire/execwire/integration/harness"
)

// BenchmarkUpgrade_Pause is for how long a server with 100 processes and 1,000 connections
// does not serve. docs/upgrade.md has results.
func BenchmarkUpgrade_Pause(b *testing.B) {
	const processes, connections = 100, 1000
	c := harness.ServeWith(b, []string{"--connections-per-listener", "2000"})
	upgrade := func() time.Duration {
		result := harness.Run(b, nil, c.Remotely(harness.UnixTransport, "upgrade", "--json")...)
		var done struct {
			Pause float64 `json:"pause_seconds"`
		}
		if err := json.Unmarshal([]byte(result.Stdout), &done); err != nil {
			b.Fatalf("%+v: %v", result, err)
		}
		return time.Duration(done.Pause * float64(time.Second))
	}
	for i := range processes {
		harness.Run(b, nil, c.Remotely(harness.UnixTransport, "run", "--detach", "--id", fmt.Sprint(i), "--", "sh", "-c", "seq 10000; exec sleep 1000")...)
	}
	var conns []*grpc.ClientConn
	for range connections {
		conns = append(conns, harness.Dial(b, "tcp", c.Address(harness.TCPTransport)))
	}
	var pauses []time.Duration
	for b.Loop() {
		for _, conn := range conns {
			if _, err := healthpb.NewHealthClient(conn).Check(b.Context(), &healthpb.HealthCheckRequest{}); err != nil {
				b.Fatal(err)
			}
		}
		pauses = append(pauses, upgrade())
	}
	slices.Sort(pauses)
	b.ReportMetric(float64(pauses[len(pauses)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(pauses[len(pauses)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(0, "ns/op")
}
