package files

import (
	"encoding/json"
	"errors"
	"github.com/execwire/execwire/integration/harness"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// changeNotification is fs/changed.
type changeNotification struct {
	WatchID  string
	Changes  []struct{ Path, Kind, Type string }
	Overflow bool
	Lost     *struct{ Path, Reason, Message string }
}

// mirror is a copy of a directory of the server that is updated from notifications.
type mirror struct {
	*harness.RPCClient
	of, at string
	taken  int // frames of the record
}

// take applies the notifications since the last call, and reports whether there were any.
func (m *mirror) take() bool {
	m.Helper()
	frames := m.Record()
	found := false
	for _, frame := range frames[m.taken:] {
		if frame.Method != "fs/changed" {
			continue
		}
		found = true
		var news changeNotification
		if err := json.Unmarshal(frame.Params, &news); err != nil {
			m.Fatal(err)
		}
		if news.Overflow || news.Lost != nil {
			m.Fatalf("the watch reported %s", frame.Params)
		}
		for _, change := range news.Changes {
			m.apply(change.Path, change.Kind, change.Type)
		}
	}
	m.taken = len(frames)
	return found
}

func (m *mirror) apply(path, kind, what string) {
	m.Helper()
	name, err := filepath.Rel(m.of, path)
	if err != nil {
		m.Fatal(err)
	}
	own := filepath.Join(m.at, name)
	if kind == "created" || kind == "removed" {
		// Where the copy still has a file, there is nothing below it to remove.
		if err = os.RemoveAll(own); errors.Is(err, syscall.ENOTDIR) {
			err = nil
		}
	}
	switch {
	case err != nil, kind == "removed", kind == "metadata":
	case what == "directory":
		err = os.MkdirAll(own, 0o755)
	case what == "file":
		var read struct{ DataBase64 []byte }
		answer := m.Call("fs/readFile", harness.RPCParams{"path": path})
		// It was removed since, and its directory may have become a file. That is reported, too.
		if failed := answer.Error; failed != nil && (failed.Code == -32004 || strings.HasPrefix(failed.Message, "Not a directory")) {
			return
		}
		m.Decode("fs/readFile", answer, &read)
		err = os.WriteFile(own, read.DataBase64, 0o644)
	}
	if err != nil {
		m.Errorf("%s of %s, a %s: %v", kind, name, what, err)
	}
}

// A copy of a source tree that is updated from the notifications of a watch equals the tree.
func TestWatch_SourceTree_KeepsACopyInSync(t *testing.T) {
	harness.Slow(t)
	c := harness.WebsocketClient(t, harness.NewServer(t, nil).Address(harness.WebsocketTransport)).Initialize("")
	tree := realTree(t)
	m := &mirror{RPCClient: c, of: tree, at: filepath.Join(harness.ShortDir(t), "mirror")}
	var watching struct{ Watching bool }
	if c.Result("fs/watch", harness.RPCParams{"watchId": "w", "path": tree, "recursive": true}, &watching); !watching.Watching {
		t.Fatal("the tree is not watched")
	}
	if err := os.CopyFS(m.at, os.DirFS(tree)); err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	t.Logf("the seed is %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	changeTree(t, tree, random)
	want := snapshotTree(t, tree, false)
	if changed := len(want.differences(snapshotTree(t, m.at, false))); changed < 30 {
		t.Errorf("only %d paths were changed", changed)
	}
	for {
		taken := m.taken
		m.Until("the copy is what the tree is", func(frames []harness.RPCFrame) bool { return len(frames) > taken })
		if m.take() && len(want.differences(snapshotTree(t, m.at, false))) == 0 {
			break
		}
	}
	want.expect(t, "mirrored", m.at, false)
	c.Result("fs/unwatch", harness.RPCParams{"watchId": "w"}, nil)
}
