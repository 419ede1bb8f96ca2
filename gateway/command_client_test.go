package gateway

import (
	"strings"
)

// command starts a shell command in the older dialect.
func (cl *client) command(id, script string, members ...any) {
	cl.t.Helper()
	cl.must("command/exec", with(startOf(id, script), members...))
}

// commandOutput waits until a process of the older dialect is said to have
// exited, and returns what it said by then, of each stream. Its seqs must follow
// each other from first.
func (cl *client) commandOutput(id string, first uint64) (streams map[string]string, exitCode int) {
	cl.t.Helper()
	exited := cl.event(id, "command/exec/exited")
	said := map[string]*strings.Builder{}
	for _, f := range cl.all() {
		switch {
		case f.Method == "" || f.Params.ProcessID != id:
			continue
		case f.Method == "command/exec/exited":
			streams = map[string]string{}
			for stream, b := range said {
				streams[stream] = b.String()
			}
			return streams, *exited.Params.ExitCode
		case f.Method != "command/exec/outputDelta":
			cl.t.Fatalf("%s is told of by %.300s", id, f.raw)
		case f.Params.Seq != first:
			cl.t.Fatalf("seq %d of %s comes where %d should: %s", f.Params.Seq, id, first, summary(cl.all()))
		}
		first++
		if said[f.Params.Stream] == nil {
			said[f.Params.Stream] = &strings.Builder{}
		}
		said[f.Params.Stream].Write(f.Params.Chunk)
	}
	return nil, 0
}

// methodsOf returns by which notifications the client was told of a process,
// each once for as often as it came in a row.
func (cl *client) methodsOf(id string) (methods []string) {
	for _, f := range cl.all() {
		if f.Method != "" && f.Params.ProcessID == id && (len(methods) == 0 || methods[len(methods)-1] != f.Method) {
			methods = append(methods, f.Method)
		}
	}
	return methods
}
