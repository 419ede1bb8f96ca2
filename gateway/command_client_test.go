package gateway

import (
	"strings"
)

// command starts a shell command in the older dialect.
func (cl *client) command(id, script string, members ...any) {
	cl.t.Helper()
	cl.must("command/exec", with(startOf(id, script), members...))
}

// commandOutput waits for the exit notification of a process of the older
// dialect, and returns the output of each stream before it. The seqs must be
// contiguous from first.
func (cl *client) commandOutput(id string, first uint64) (streams map[string]string, exitCode int) {
	cl.t.Helper()
	exited := cl.event(id, "command/exec/exited")
	output := map[string]*strings.Builder{}
	for _, f := range cl.all() {
		switch {
		case f.Method == "" || f.Params.ProcessID != id:
			continue
		case f.Method == "command/exec/exited":
			streams = map[string]string{}
			for stream, b := range output {
				streams[stream] = b.String()
			}
			return streams, *exited.Params.ExitCode
		case f.Method != "command/exec/outputDelta":
			cl.t.Fatalf("a notification of %s has the wrong method: %.300s", id, f.raw)
		case f.Params.Seq != first:
			cl.t.Fatalf("got seq %d of %s, want %d: %s", f.Params.Seq, id, first, summary(cl.all()))
		}
		first++
		if output[f.Params.Stream] == nil {
			output[f.Params.Stream] = &strings.Builder{}
		}
		output[f.Params.Stream].Write(f.Params.Chunk)
	}
	return nil, 0
}

// methodsOf returns the methods of the notifications of a process, without
// repetitions.
func (cl *client) methodsOf(id string) (methods []string) {
	for _, f := range cl.all() {
		if f.Method != "" && f.Params.ProcessID == id && (len(methods) == 0 || methods[len(methods)-1] != f.Method) {
			methods = append(methods, f.Method)
		}
	}
	return methods
}
