package integration

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwire/execwire/client"
)

// soakTime is how long all attacks go on at once. Without a duration it is no test
// for every day.
func soakTime(t testing.TB) time.Duration {
	t.Helper()
	text := os.Getenv("EXECWIRE_SOAK_DURATION")
	if text == "" {
		t.Skip("slow: runs in make soak")
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("EXECWIRE_SOAK_DURATION: %v", err)
	}
	return d
}

// soakGrowth is by how many MiB the server's memory may grow while all attacks go
// on: what the attacks were seen to cost one by one, together.
const soakGrowth = 3000

// unchecked is the attackers' end of a soak. Attacks that go on at once take each
// other's places, so that what one of them wants to see need not come about: only
// the neighbour's answers count.
type unchecked struct{ testing.TB }

func (u unchecked) Error(...any)          {}
func (u unchecked) Errorf(string, ...any) {}
func (u unchecked) Fatal(...any)          { runtime.Goexit() }
func (u unchecked) Fatalf(string, ...any) { runtime.Goexit() }

// beginUntil runs one wave, whose connections are dropped from end on: it may wait for
// what does not come about beside other attacks.
func (a *assault) beginUntil(end time.Time, wave func(*assault)) {
	over := make(chan struct{})
	var dropping sync.WaitGroup
	dropping.Go(func() {
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if time.Now().After(end) {
					a.dropAll()
				}
			case <-over:
				return
			}
		}
	})
	a.begin(wave)
	close(over)
	dropping.Wait()
}

// largeBytes is the size of the neighbour's large messages and uploads.
const largeBytes = 300 << 10

// useLarge sends a large message, whose answer is checked, and reads it back.
func (n *neighbour) useLarge() {
	n.Helper()
	path := filepath.Join(n.dir, "large")
	content := bytes.Repeat(fmt.Appendf(nil, "%07d\n", n.rounds), largeBytes/8)
	encoded := base64.StdEncoding.EncodeToString(content)
	n.result("fs/writeFile", rpcParams{"path": path, "dataBase64": encoded}, nil)
	var read struct{ DataBase64 string }
	if n.result("fs/readFile", rpcParams{"path": path}, &read); read.DataBase64 != encoded {
		n.Errorf("round %d: a file of %d bytes is read with %d", n.rounds, len(encoded), len(read.DataBase64))
	}
}

// useUpload streams a file to the server.
func (n *neighbour) useUpload(c *client.Client) {
	n.Helper()
	path := filepath.Join(n.dir, "uploaded")
	content := bytes.Repeat(fmt.Appendf(nil, "%07d\n", n.rounds), largeBytes/8)
	if _, err := c.Upload(testContext(n), path, bytes.NewReader(content), client.UploadOptions{}); err != nil {
		n.Errorf("round %d: an upload failed: %v", n.rounds, err)
	}
	if on, err := os.ReadFile(path); err != nil || !bytes.Equal(on, content) {
		n.Errorf("round %d: %d bytes of an upload are there, %v", n.rounds, len(on), err)
	}
}

// useWatch watches a directory, in which a file appears.
func (n *neighbour) useWatch() {
	n.Helper()
	id, name := fmt.Sprint("w", n.rounds), fmt.Sprint("seen-", n.rounds)
	n.result("fs/watch", rpcParams{"watchId": id, "path": n.dir, "settleMs": 0}, nil)
	path := filepath.Join(n.dir, name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		n.Fatal(err)
	}
	n.until("the watch reports the file", func(frames []rpcFrame) bool {
		return slices.ContainsFunc(frames, func(f rpcFrame) bool { return strings.Contains(string(f.Params), name) })
	})
	n.result("fs/unwatch", rpcParams{"watchId": id}, nil)
	if err := os.Remove(path); err != nil {
		n.Fatal(err)
	}
}

// TestHostileSoak has all attacks go on at once for EXECWIRE_SOAK_DURATION, while a
// neighbour of the same principal works, every answer of which is right: small and
// large messages, streamed uploads, starts and watches. Then nothing is left.
func TestHostileSoak(t *testing.T) {
	howLong, scale := soakTime(t), smallScale
	if howLong >= time.Minute {
		scale = soakScale
	}
	settings := append([]string{"EXECWIRE_DEFAULT_GRACE=1s", "GOGC=25"}, tightMessages...)
	server := serve(t, settings...)
	pid := server.serverPID(t)
	n := moveIn(t, server.address(websocketDoor))
	uploads, err := client.Dial(testContext(t), server.urls[unixDoor])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = uploads.Close() })
	round := func() {
		n.work(1)
		n.useLarge()
		n.useUpload(uploads)
		n.useWatch()
		n.forget()
	}
	round()
	kernel := benchProcess{tb: t, pid: pid}
	before, memory := kernel.descriptors(), server.residentBytes(t, "VmRSS")
	end := time.Now().Add(howLong)
	var attacking sync.WaitGroup
	for _, one := range attacks() {
		attacking.Go(func() {
			for wave := 0; time.Now().Before(end); wave++ {
				a := &assault{TB: unchecked{t}, address: server.address(websocketDoor), scale: scale, before: wave, end: end}
				a.beginUntil(end, one.wave)
			}
		})
	}
	rounds := 0
	for ; time.Now().Before(end); rounds++ {
		round()
	}
	attacking.Wait()
	grown := (server.residentBytes(t, "VmHWM") - memory) >> 20
	t.Logf("%d rounds of the neighbour; resident memory grew by up to %d MiB", rounds, grown)
	if grown > soakGrowth && !raceEnabled {
		t.Errorf("resident memory grew by up to %d MiB, want at most %d", grown, soakGrowth)
	}
	eventually(t, "the descriptors of the attacks are closed", func() bool { return kernel.descriptors() <= before })
	eventually(t, "the processes of the attacks are gone", func() bool { return len(descendants(pid)) == 0 })
	round()
}
