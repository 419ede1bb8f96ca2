package hostile

import (
	"encoding/base64"
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// neighbour is a client that works on a server during attacks, and checks every response. Its
// methods are for the goroutine of the test.
type neighbour struct {
	*harness.RPCClient
	dir    string
	rounds int
}

// moveIn opens the session of a neighbour.
func moveIn(t testing.TB, address string) *neighbour {
	t.Helper()
	return &neighbour{RPCClient: harness.WebsocketClient(t, address).Initialize(""), dir: t.TempDir()}
}

// moveInAs opens the session of a neighbour with a header of the upgrade, and its
// directory.
func moveInAs(t testing.TB, address string, header http.Header, dir string) *neighbour {
	t.Helper()
	return &neighbour{RPCClient: harness.DialWebsocket(t, address, header, nil).Initialize(""), dir: dir}
}

// workDuring works during a wave of an attack on its transport, and returns the number of
// rounds.
func (n *neighbour) workDuring(one attack, scale int) int {
	n.Helper()
	return n.workDuringAttackOn(n.Websocket().Conn.RemoteAddr().String(), scale, one.wave)
}

// workDuringAttackOn is workDuring for an attack on another listener.
func (n *neighbour) workDuringAttackOn(address string, scale int, wave func(*attackWave)) int {
	n.Helper()
	a := &attackWave{TB: n, address: address, scale: scale}
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

// work does so many rounds of all operations.
func (n *neighbour) work(rounds int) {
	n.Helper()
	for range rounds {
		n.rounds++
		n.useFiles()
		n.useProcess()
		n.endProcess()
		n.Forget()
	}
}

func (n *neighbour) useFiles() {
	n.Helper()
	var status struct{ Status string }
	if n.Result("environment/status", nil, &status); status.Status != "ready" {
		n.Errorf("the status is %q", status.Status)
	}
	path := filepath.Join(n.dir, "f")
	content := fmt.Sprintf("round %d\n", n.rounds)
	encoded := base64.StdEncoding.EncodeToString([]byte(content))
	n.Result("fs/writeFile", harness.RPCParams{"path": path, "dataBase64": encoded}, nil)
	var metadata struct {
		IsFile bool
		Size   int
	}
	if n.Result("fs/getMetadata", harness.RPCParams{"path": path}, &metadata); !metadata.IsFile || metadata.Size != len(content) {
		n.Errorf("a file of %d bytes is %+v", len(content), metadata)
	}
	var read struct{ DataBase64 string }
	if n.Result("fs/readFile", harness.RPCParams{"path": path}, &read); read.DataBase64 != encoded {
		n.Errorf("%q was written and %q read", encoded, read.DataBase64)
	}
	if on, err := os.ReadFile(path); err != nil || string(on) != content {
		n.Errorf("the file has %q, %v", on, err)
	}
	n.Refused("fs/getMetadata", harness.RPCParams{"path": filepath.Join(n.dir, "none")}, -32004)
}

// useProcess runs a process, writes to it and reads its output.
func (n *neighbour) useProcess() {
	n.Helper()
	id, line := fmt.Sprint("p", n.rounds), fmt.Sprintf("line %d\n", n.rounds)
	n.Result("process/start", harness.StartOf(id, harness.Shell(`read -r line; echo "$line"; echo "$line" >&2; exit 7`), harness.RPCParams{"pipeStdin": true}), nil)
	var written struct{ Status string }
	if n.Result("process/write", harness.WriteOf(id, line), &written); written.Status != "accepted" {
		n.Errorf("a write is %q", written.Status)
	}
	n.awaitClosed(id)
	exit, last := -1, uint64(0)
	for _, e := range harness.EventsOf(n.Record(), id) {
		if e.Seq != last+1 {
			n.Errorf("number %d of %s came after %d", e.Seq, id, last)
		}
		last = e.Seq
		if e.Method == "process/exited" {
			exit = e.ExitCode
		}
	}
	if out, err := harness.OutputOf(n.Record(), id, "stdout"), harness.OutputOf(n.Record(), id, "stderr"); out != line || err != line || exit != 7 {
		n.Errorf("%s wrote %q and %q and exited with %d", id, out, err, exit)
	}
	var read harness.RPCRead
	if n.Result("process/read", harness.RPCParams{"processId": id, "afterSeq": 0}, &read); !read.Closed || read.ExitCode == nil || *read.ExitCode != 7 || len(read.Chunks) != 2 {
		n.Errorf("reading %s returns %+v", id, read)
	}
}

// endProcess terminates a process.
func (n *neighbour) endProcess() {
	n.Helper()
	id := fmt.Sprint("q", n.rounds)
	n.Result("process/start", harness.StartOf(id, []string{"/bin/sleep", "1000"}, nil), nil)
	var ended struct{ Running bool }
	if n.Result("process/terminate", harness.RPCParams{"processId": id}, &ended); !ended.Running {
		n.Errorf("terminating %s reports that it was not running", id)
	}
	n.awaitClosed(id)
}

func (n *neighbour) awaitClosed(id string) {
	n.Helper()
	n.Until(id+" closes", func(frames []harness.RPCFrame) bool {
		events := harness.EventsOf(frames, id)
		return len(events) > 0 && events[len(events)-1].Method == "process/closed"
	})
}
