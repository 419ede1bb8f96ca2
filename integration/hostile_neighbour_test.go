package integration

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// neighbour is a client that works on a server while others attack it, and wants
// every answer to be right. Its methods are for the goroutine of the test.
type neighbour struct {
	*rpcClient
	dir    string
	rounds int
}

// moveIn opens the session of a neighbour.
func moveIn(t testing.TB, address string) *neighbour {
	t.Helper()
	return &neighbour{rpcClient: websocketClient(t, address).initialize(""), dir: t.TempDir()}
}

// moveInAs opens the session of a neighbour with a header of the upgrade, and its
// directory.
func moveInAs(t testing.TB, address string, header http.Header, dir string) *neighbour {
	t.Helper()
	return &neighbour{rpcClient: dialWebsocket(t, address, header, nil).initialize(""), dir: dir}
}

// besieged works while a wave of an attack on its door goes on, and returns how
// many rounds there were.
func (n *neighbour) besieged(one attack, scale int) int {
	n.Helper()
	return n.besiegedAt(n.websocket().conn.RemoteAddr().String(), scale, one.wave)
}

// besiegedAt is besieged for an attack on another door.
func (n *neighbour) besiegedAt(address string, scale int, wave func(*assault)) int {
	n.Helper()
	a := &assault{TB: n, address: address, scale: scale}
	over := make(chan struct{})
	go func() {
		defer close(over)
		a.begin(wave)
	}()
	defer func() { <-over }()
	for rounds := 0; ; rounds++ {
		select {
		case <-over:
			return rounds
		default:
			n.work(1)
		}
	}
}

// work does so many rounds of everything.
func (n *neighbour) work(rounds int) {
	n.Helper()
	for range rounds {
		n.rounds++
		n.useFiles()
		n.useProcess()
		n.endProcess()
		n.forget()
	}
}

// forget drops the record, which would grow without a bound.
func (c *rpcClient) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frames = nil
}

func (n *neighbour) useFiles() {
	n.Helper()
	var status struct{ Status string }
	if n.result("environment/status", nil, &status); status.Status != "ready" {
		n.Errorf("the status is %q", status.Status)
	}
	path := filepath.Join(n.dir, "f")
	content := fmt.Sprintf("round %d\n", n.rounds)
	encoded := base64.StdEncoding.EncodeToString([]byte(content))
	n.result("fs/writeFile", rpcParams{"path": path, "dataBase64": encoded}, nil)
	var metadata struct {
		IsFile bool
		Size   int
	}
	if n.result("fs/getMetadata", rpcParams{"path": path}, &metadata); !metadata.IsFile || metadata.Size != len(content) {
		n.Errorf("a file of %d bytes is %+v", len(content), metadata)
	}
	var read struct{ DataBase64 string }
	if n.result("fs/readFile", rpcParams{"path": path}, &read); read.DataBase64 != encoded {
		n.Errorf("%q was written and %q read", encoded, read.DataBase64)
	}
	if on, err := os.ReadFile(path); err != nil || string(on) != content {
		n.Errorf("the file has %q, %v", on, err)
	}
	n.refused("fs/getMetadata", rpcParams{"path": filepath.Join(n.dir, "none")}, -32004)
}

// useProcess runs a process, writes to it and takes all that it says.
func (n *neighbour) useProcess() {
	n.Helper()
	id, line := fmt.Sprint("p", n.rounds), fmt.Sprintf("line %d\n", n.rounds)
	n.result("process/start", startOf(id, shell(`read -r line; echo "$line"; echo "$line" >&2; exit 7`), rpcParams{"pipeStdin": true}), nil)
	var written struct{ Status string }
	if n.result("process/write", writeOf(id, line), &written); written.Status != "accepted" {
		n.Errorf("a write is %q", written.Status)
	}
	n.awaitClosed(id)
	exit, last := -1, uint64(0)
	for _, e := range eventsOf(n.record(), id) {
		if e.Seq != last+1 {
			n.Errorf("number %d of %s came after %d", e.Seq, id, last)
		}
		last = e.Seq
		if e.method == "process/exited" {
			exit = e.ExitCode
		}
	}
	if out, err := outputOf(n.record(), id, "stdout"), outputOf(n.record(), id, "stderr"); out != line || err != line || exit != 7 {
		n.Errorf("%s said %q and %q and exited with %d", id, out, err, exit)
	}
	var read rpcRead
	if n.result("process/read", rpcParams{"processId": id, "afterSeq": 0}, &read); !read.Closed || read.ExitCode == nil || *read.ExitCode != 7 || len(read.Chunks) != 2 {
		n.Errorf("reading %s says %+v", id, read)
	}
}

// endProcess terminates a process.
func (n *neighbour) endProcess() {
	n.Helper()
	id := fmt.Sprint("q", n.rounds)
	n.result("process/start", startOf(id, []string{"/bin/sleep", "1000"}, nil), nil)
	var ended struct{ Running bool }
	if n.result("process/terminate", rpcParams{"processId": id}, &ended); !ended.Running {
		n.Errorf("terminating %s says that it was not running", id)
	}
	n.awaitClosed(id)
}

func (n *neighbour) awaitClosed(id string) {
	n.Helper()
	n.until(id+" closes", func(frames []rpcFrame) bool {
		events := eventsOf(frames, id)
		return len(events) > 0 && events[len(events)-1].method == "process/closed"
	})
}
