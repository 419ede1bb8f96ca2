package bench

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// growthRatio limits what one of many costs beside one of few.
const growthRatio = 1.3

// growing is something of which a server has more and more.
type growing struct {
	what   string
	levels []int
	// settings raise the server's limits.
	settings []string
	// prepare returns what adds the i-th, which stays until the benchmark ends.
	prepare func(b *bench, server *harness.Peer) func(i int)
}

// measureGrowth measures the memory of each, and the time to add one, at some levels. The
// third is the floor of the last.
func measureGrowth(b *bench) []line {
	kinds := []growing{
		{"connections", b.sizes.growth, []string{"EXECWIRE_CONNECTIONS_PER_LISTENER=20000", "EXECWIRE_KEEPALIVE_INTERVAL=1h"}, (*bench).addConnections},
		{"sessions", b.sizes.growth, []string{"EXECWIRE_SESSIONS_PER_PRINCIPAL=20000", "EXECWIRE_SESSIONS_TOTAL=20000"}, (*bench).addSessions},
		{"watches", b.sizes.growth, []string{"EXECWIRE_WATCHES_PER_PRINCIPAL=20000"}, (*bench).addWatches},
		// Ten times as many would need 30,000 descriptors and 2 GiB for the programs.
		{"processes", b.sizes.growth[:len(b.sizes.growth)-1], []string{"EXECWIRE_PROCESSES_PER_SESSION=20000"}, (*bench).addProcesses},
	}
	var lines []line
	for _, kind := range kinds {
		lines = append(lines, b.grow(kind)...)
	}
	return lines
}

func (b *bench) grow(kind growing) []line {
	server := b.startServer(kind.settings...)
	add := kind.prepare(b, server)
	add(0) // does not count
	b.settle()
	base := server.Resident()
	var memory, times figures
	n := 0
	for i, level := range kind.levels {
		var added harness.Samples[time.Duration]
		for ; n < level; n++ {
			added = append(added, harness.Timed(func() { add(n + 1) }))
		}
		if i >= 2 {
			b.settle() // what fewer cost is not compared
		}
		memory = append(memory, float64(server.Resident()-base)/float64(level))
		times = append(times, added[max(0, len(added)-100):].Median().Seconds())
		b.raw("%d %s: %s for each, %s to add one", level, kind.what, showKiB(memory[i]), showSeconds(times[i]))
	}
	spent := server.CPU()
	time.Sleep(b.sizes.idle)
	spent = server.CPU() - spent
	few, many := 2, len(kind.levels)-1
	what := fmt.Sprintf(" with %d %s, beside %d", kind.levels[many], kind.what, kind.levels[few])
	return []line{
		atMost("memory of each"+what, memory[few:few+1], memory[many:], growthRatio, showKiB),
		atMost("time to add one"+what, times[few:few+1], times[many:], growthRatio, showSeconds),
		within(fmt.Sprintf("CPU in %v with %d idle %s", b.sizes.idle, n, kind.what), nil, figures{spent.Seconds()}, 0, showSeconds),
	}
}

// addConnections opens connections that have exchanged the settings of HTTP/2, without a
// client of gRPC, of which so many would not fit.
func (b *bench) addConnections(server *harness.Peer) func(int) {
	address := strings.TrimPrefix(server.URLs["unix"], "unix://")
	const header, settings, acknowledged = 9, 4, 1
	return func(int) {
		conn, err := net.Dial("unix", address)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = conn.Close() })
		none := [header]byte{3: settings}
		_, err = conn.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), none[:]...))
		for acknowledgements := 0; err == nil && acknowledgements == 0; {
			var frame [header]byte
			if _, err = io.ReadFull(conn, frame[:]); err != nil {
				break
			}
			size := int64(binary.BigEndian.Uint32(frame[:4]) >> 8)
			if _, err = io.CopyN(io.Discard, conn, size); frame[3] == settings && frame[4] == acknowledged {
				acknowledgements++
			}
		}
		if err != nil {
			b.Fatal(err)
		}
		none[4] = acknowledged
		if _, err := conn.Write(none[:]); err != nil {
			b.Fatal(err)
		}
	}
}

// streamsPerChannel is how many streams share a connection, within the server's limit.
const streamsPerChannel = 1000

// channels returns the channel of the i-th stream.
func (b *bench) channels(server *harness.Peer) func(i int) grpc.ClientConnInterface {
	var conn *grpc.ClientConn
	return func(i int) grpc.ClientConnInterface {
		if i%streamsPerChannel == 0 {
			conn = b.channel(server)
		}
		return conn
	}
}

func (b *bench) addSessions(server *harness.Peer) func(int) {
	channel := b.channels(server)
	return func(i int) {
		stream, err := execwirev1.NewSessionServiceClient(channel(i)).AttachSession(b.ctx)
		if err == nil {
			err = stream.Send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Attach{Attach: &execwirev1.SessionAttach{}}})
		}
		if err != nil {
			b.Fatal(err)
		}
		if m, err := stream.Recv(); err != nil || m.GetAttached() == nil {
			b.Fatalf("session %d: %v, %v", i, m, err)
		}
	}
}

func (b *bench) addWatches(server *harness.Peer) func(int) {
	channel, above := b.channels(server), b.TempDir()
	return func(i int) {
		dir := filepath.Join(above, strconv.Itoa(i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			b.Fatal(err)
		}
		stream, err := execwirev1.NewFileSystemServiceClient(channel(i)).WatchDirectory(b.ctx, &execwirev1.WatchDirectoryRequest{Path: dir})
		if err != nil {
			b.Fatal(err)
		}
		if m, err := stream.Recv(); err != nil || m.GetStarted() == nil {
			b.Fatalf("watch %d: %v, %v", i, m, err)
		}
	}
}

func (b *bench) addProcesses(server *harness.Peer) func(int) {
	c := b.dial(server, "TCP")
	return func(int) { b.start(c, benchCommand("/bin/sleep", "600")) }
}
