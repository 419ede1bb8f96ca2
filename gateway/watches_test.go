package gateway

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// fsChanged has the parameters of fs/changed.
type fsChanged struct {
	WatchID  json.RawMessage
	Changes  []fsChange
	Overflow bool
	Lost     *struct{ Path, Reason, Message, PathBase64 string }
}

type fsChange struct{ Path, Kind, Type, PathBase64 string }

// changedOf waits for the first wanted fs/changed of a watch, and returns its index.
func (cl *client) changedOf(id string, wanted func(fsChanged) bool) (fsChanged, int) {
	cl.t.Helper()
	var got fsChanged
	_, at := cl.wait("fs/changed of "+id, func(f frame) bool {
		if f.Method != "fs/changed" {
			return false
		}
		var m struct{ Params fsChanged }
		cl.decode(f.raw, &m)
		got = m.Params
		return string(got.WatchID) == id && wanted(got)
	})
	return got, at
}

// changeOf waits for a change of a path, and returns it.
func (cl *client) changeOf(id, path, kind string) fsChange {
	cl.t.Helper()
	var change fsChange
	cl.changedOf(id, func(c fsChanged) bool {
		for _, change = range c.Changes {
			if change.Path == path && change.Kind == kind {
				return true
			}
		}
		return false
	})
	return change
}

func watchOf(id any, path string, members ...any) map[string]any {
	return with(map[string]any{"watchId": id, "path": path}, members...)
}

func TestWatch(t *testing.T) {
	for _, dialect := range []string{"", "file://"} {
		cl, _ := newTestServer(t).attach("")
		dir := t.TempDir()
		do(t, os.WriteFile(dir+"/old", nil, 0o600), os.Mkdir(dir+"/d", 0o755))
		if got := string(cl.must("fs/watch", watchOf("w\u00e4", dialect+dir, "recursive", true, "ignore", []string{"*.tmp"}, "settleMs", 1))); got != `{"watching":true}` {
			t.Errorf("fs/watch returned %s", got)
		}
		do(t, os.WriteFile(dir+"/x.tmp", nil, 0o600), os.WriteFile(dir+"/d/new", nil, 0o600), os.Remove(dir+"/old"), os.WriteFile(dir+"/bad\xff", nil, 0o600), os.Mkdir(dir+"/e f", 0o755))
		id := `"wä"`
		if got := cl.changeOf(id, dialect+dir+"/d/new", "created"); got.Type != "file" {
			t.Errorf("got the change %v", got)
		}
		if got := cl.changeOf(id, dialect+dir+"/old", "removed"); got.Type != "" {
			t.Errorf("got the change %v", got)
		}
		bad, space := cl.changeOf, " "
		if dialect != "" {
			space = "%20"
			if got := bad(id, dialect+dir+"/bad%FF", "created"); got.PathBase64 != "" {
				t.Errorf("got the change %v", got)
			}
		} else if got := bad(id, dir+"/bad\uFFFD", "created"); got.PathBase64 == "" {
			t.Errorf("got the change %v", got)
		}
		if got := cl.changeOf(id, dialect+dir+"/e"+space+"f", "created"); got.Type != "directory" {
			t.Errorf("got the change %v", got)
		}
		for _, f := range cl.all() {
			if strings.Contains(string(f.raw), "x.tmp") {
				t.Errorf("got the change %s", f.raw)
			}
		}
	}
}

// After the response to fs/unwatch no notification of the watch is sent, and its
// id is free.
func TestUnwatch(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	dir := t.TempDir()
	watched, unwatched := cl.ask("fs/watch", watchOf(7, dir)), cl.ask("fs/unwatch", map[string]any{"watchId": 7})
	for _, id := range []string{watched, unwatched} {
		if f := cl.reply(id); f.Error != nil {
			t.Fatal(f.Error)
		}
	}
	before := len(cl.all())
	do(t, os.WriteFile(dir+"/f", nil, 0o600))
	cl.must("fs/watch", watchOf(8, dir, "settleMs", 0))
	do(t, os.WriteFile(dir+"/g", nil, 0o600))
	cl.changeOf("8", dir+"/g", "created")
	for _, f := range cl.all()[before:] {
		if strings.Contains(string(f.raw), `"watchId":7`) {
			t.Errorf("after the end received %s", f.raw)
		}
	}
	cl.must("fs/watch", watchOf(7, dir))
	cl.must("fs/watchMissing", map[string]any{"watchId": 9, "missing": []string{dir + "/none"}})
	for _, id := range []any{7, 9, 9, "none"} {
		if got := string(cl.must("fs/unwatch", map[string]any{"watchId": id})); got != `{}` {
			t.Errorf("fs/unwatch returned %s", got)
		}
	}
}

func TestWatch_Lost_Ends(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	dir := t.TempDir() + "/d"
	do(t, os.Mkdir(dir, 0o755))
	cl.must("fs/watch", watchOf(1, dir))
	do(t, os.Remove(dir))
	got, _ := cl.changedOf("1", func(c fsChanged) bool { return c.Lost != nil })
	if got.Lost.Path != dir || got.Lost.Reason != "removed" || got.Lost.Message == "" {
		t.Errorf("the reported loss is %v", got.Lost)
	}
	do(t, os.Mkdir(dir, 0o755))
	cl.must("fs/watch", watchOf(1, dir))
}

func TestWatch_Errors(t *testing.T) {
	const idType = "-32602 invalid type: watchId is a string or an unsigned number"
	checkCalls(t, func(dir string) { do(t, os.WriteFile(dir+"/f", nil, 0o600), os.Mkdir(dir+"/d", 0o755)) }, []literalCall{
		{"fs/watch", `{"path":"T/d"}`, "-32602 missing field `watchId`"},
		{"fs/watch", `{"watchId":1}`, "-32602 missing field `path`"},
		{"fs/watch", `{"watchId":null,"path":"T/d"}`, idType},
		{"fs/watch", `{"watchId":-1,"path":"T/d"}`, idType},
		{"fs/watch", `{"watchId":[],"path":"T/d"}`, idType},
		{"fs/watch", `{"watchId":"` + strings.Repeat("x", 130) + `","path":"T/d"}`, "-32602 watchId must be at most 128 bytes"},
		{"fs/watch", `{"watchId":1,"path":"d"}`, "-32602 invalid URI: relative URL without a base"},
		{"fs/watch", `{"watchId":1,"path":"T/none"}`, missing},
		{"fs/watch", `{"watchId":1,"path":"T/f"}`, "-32603 failed to watch DIR/f: it is not a directory: watch the one that it is in"},
		{"fs/watch", `{"watchId":1,"path":"T/d","sandbox":null,"recursive":null,"ignore":null,"settleMs":null}`, `{"watching":true}`},
		{"fs/watch", `{"watchId":1,"path":"T/d"}`, "-32600 watch 1 already exists"},
		{"fs/watchMissing", `{"watchId":1,"missing":["T/x"]}`, "-32600 watch 1 already exists"},
		{"fs/watch", `{"watchId":"1","path":"T/d"}`, `{"watching":true}`},
		{"fs/watchMissing", `{"watchId":2,"missing":["T/x"],"present":"T/f","sandbox":null}`, `{"watching":true}`},
		{"fs/watchMissing", `{"watchId":3,"missing":[],"present":["T/f"]}`, `{"watching":true}`},
		{"fs/watchMissing", `{"watchId":4,"missing":[]}`, `{"watching":false}`},
		{"fs/watchMissing", `{"watchId":4,"missing":["x"]}`, "-32602 invalid URI: relative URL without a base"},
		{"fs/watchMissing", `{"watchId":4}`, "-32602 missing field `missing`"},
		{"fs/watchMissing", `{"watchId":4,"missing":[],"present":4}`, "-32602 invalid type: present is a path or a list of paths"},
		{"fs/unwatch", `{}`, "-32602 missing field `watchId`"},
	})
	cl, _ := newTestServer(t).attach("")
	dir := t.TempDir()
	failed := cl.refused("fs/watch", watchOf(1, dir, "ignore", []string{"x", "!y"}), -32602, "ignore[1]")
	if failed.Data["field"] != "ignore[1]" {
		t.Errorf("the data is %v", failed.Data)
	}
	cl.refused("fs/watch", watchOf(1, dir, "settleMs", 10_001), -32602, "settle")
	cl.refused("fs/watch", watchOf(1, dir, "settleMs", uint64(1<<63)), -32602, "settle")
}

func TestWatch_TooMany_Fails(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	dir := t.TempDir()
	for n := range DefaultWatches / 2 {
		cl.must("fs/watch", watchOf(n, dir))
		cl.must("fs/watchMissing", map[string]any{"watchId": fmt.Sprint(n), "missing": []string{dir + "/none"}})
	}
	cl.refused("fs/watch", watchOf("more", dir), -32005, "watches_per_connection")
	cl.must("fs/unwatch", map[string]any{"watchId": 3})
	cl.must("fs/watch", watchOf("more", dir))
}

func TestWatchMissing(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	dir := t.TempDir()
	do(t, os.WriteFile(dir+"/there", nil, 0o600))
	tests := []struct {
		missing []string
		present any
		do      func() error
	}{
		{[]string{"/none", "/a/b"}, nil, func() error { return os.MkdirAll(dir+"/a/b", 0o755) }},
		{[]string{"/a/b"}, nil, func() error { return nil }},
		{nil, "file://" + dir + "/there", func() error { return os.Remove(dir + "/there") }},
	}
	for n, tt := range tests {
		paths := []string{}
		for _, p := range tt.missing {
			paths = append(paths, dir+p)
		}
		asked := cl.ask("fs/watchMissing", map[string]any{"watchId": n, "missing": paths, "present": tt.present})
		if got := string(cl.reply(asked).Result); got != `{"watching":true}` {
			t.Errorf("fs/watchMissing returned %s", got)
		}
		do(t, tt.do())
		want := fmt.Sprintf(`{"method":"fs/missingChanged","params":{"watchId":%d}}`, n)
		_, notified := cl.wait(want, func(f frame) bool { return string(f.raw) == want })
		if _, answered := cl.wait("the response", func(f frame) bool { return string(f.ID) == asked }); answered > notified {
			t.Error("the notification precedes the response")
		}
		cl.must("fs/watchMissing", map[string]any{"watchId": n, "missing": []string{dir + "/none"}})
	}
}

// Changes that the client misses are reported as missed. The queue is bounded.
func TestWatch_SlowReader_ReportsOverflow(t *testing.T) {
	srv := newTestServer(t, func(s *serverSettings) { s.limits.WatchPendingBytes = 8 << 10 })
	cl, _ := srv.attach("")
	dir := t.TempDir()
	cl.must("fs/watch", watchOf(1, dir, "settleMs", 0))
	cl.stopReading()
	for n := range 2000 {
		do(t, os.WriteFile(fmt.Sprintf("%s/%0200d", dir, n), nil, 0o600))
	}
	cl.resumeReading()
	cl.changedOf("1", func(c fsChanged) bool { return c.Overflow })
	// Later changes are reported, or reported as missed.
	for most, notified := 1, false; !notified; most++ {
		after := fmt.Sprintf("%s/after %d", dir, most)
		do(t, os.WriteFile(after, nil, 0o600))
		overflows := 0
		cl.changedOf("1", func(c fsChanged) bool {
			if c.Overflow {
				overflows++
			}
			notified = slices.ContainsFunc(c.Changes, func(change fsChange) bool { return change.Path == after && change.Kind == "created" })
			return notified || overflows > most
		})
	}
}

// All waits share one inotify instance, which is closed after the last one.
func TestWatchMissing_ManyConnections_ShareInotifyInstance(t *testing.T) {
	srv, dir := newTestServer(t), t.TempDir()
	clients := make([]*client, 50)
	for n := range clients {
		clients[n], _ = srv.attach("")
		for id := range 20 {
			clients[n].must("fs/watchMissing", map[string]any{"watchId": id, "missing": []string{fmt.Sprintf("%s/d/%d", dir, id)}})
		}
	}
	if n := inotifyInstances(t); n != 1 {
		t.Errorf("there are %d inotify instances", n)
	}
	do(t, os.Mkdir(dir+"/d", 0o755))
	for id := range 20 {
		do(t, os.WriteFile(fmt.Sprintf("%s/d/%d", dir, id), nil, 0o600))
	}
	for _, cl := range clients {
		for id := range 20 {
			want := fmt.Sprintf(`{"method":"fs/missingChanged","params":{"watchId":%d}}`, id)
			cl.wait(want, func(f frame) bool { return string(f.raw) == want })
		}
	}
}

func inotifyInstances(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	do(t, err)
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && target == "anon_inode:inotify" {
			n++
		}
	}
	return n
}
