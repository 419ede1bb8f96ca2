package conformance

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"reflect"
	"slices"
	"strings"
)

// comparison compares the messages of the reference with ours by the rules of the shared
// compare.py: codes, shapes and values, not texts. Additional members are permitted, and chunk
// boundaries are not compared.
type comparison struct {
	// place replaces volatile values by their placeholders in transcripts.
	place *strings.Replacer
	// reference and ours are the notifications about processes on one connection, for sequence
	// numbers, which depend on chunk boundaries.
	reference, ours progress
}

// uncompared lists members that differ between servers.
var uncompared = map[string]bool{"environmentInfo": true, "sessionId": true, "message": true}

// base64Members lists members whose content may have placeholders.
var base64Members = map[string]bool{"chunk": true, "dataBase64": true, "bodyBase64": true, "deltaBase64": true}

// normal returns a value without what differs between runs. own values have the values of this
// run, the others the placeholders of a transcript.
func (c comparison) normal(value any, key string) any {
	switch value := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, member := range value {
			if !uncompared[name] {
				out[c.place.Replace(name)] = c.normal(member, name)
			}
		}
		return out
	case []any:
		switch key {
		case "chunks":
			return joinChunks(c, value)
		case "entries":
			return c.sorted(value)
		}
		out := make([]any, len(value))
		for i, item := range value {
			out[i] = c.normal(item, "")
		}
		return out
	case string:
		return c.text(value, key)
	case json.Number:
		if (key == "createdAtMs" || key == "modifiedAtMs") && value != "0" && !strings.HasPrefix(value.String(), "-") {
			return "${MS}"
		}
		number, err := value.Float64()
		if err != nil {
			return value.String()
		}
		return number
	}
	return value
}

func (c comparison) text(value, key string) string {
	switch {
	case base64Members[key]:
		if data, err := base64.StdEncoding.DecodeString(value); err == nil {
			return base64.StdEncoding.EncodeToString([]byte(c.place.Replace(string(data))))
		}
	case strings.HasPrefix(value, "${SESSION"):
		return "${S}"
	}
	return c.place.Replace(value)
}

// sorted sorts a list whose order is that of a directory.
func (c comparison) sorted(value []any) []any {
	out := make([]any, len(value))
	for i, item := range value {
		out[i] = c.normal(item, "")
	}
	slices.SortFunc(out, func(a, b any) int { return strings.Compare(harness.MustJSON(a), harness.MustJSON(b)) })
	return out
}

// joinChunks joins the output of each stream.
func joinChunks(c comparison, chunks []any) map[string]any {
	out := map[string]any{}
	for _, chunk := range chunks {
		if chunk, ok := chunk.(map[string]any); ok {
			stream, _ := chunk["stream"].(string)
			before, _ := out[stream].(string)
			out[stream] = before + c.chunk(chunk["chunk"])
		}
	}
	return out
}

// chunk decodes output; truncated output becomes a question mark.
func (c comparison) chunk(value any) string {
	text, _ := value.(string)
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return "?"
	}
	return c.place.Replace(string(data))
}

// covers reports whether ours has every member of the reference's with an equal value.
func covers(reference, ours any) bool {
	switch reference := reference.(type) {
	case map[string]any:
		ours, ok := ours.(map[string]any)
		if !ok {
			return false
		}
		for name, member := range reference {
			if own, there := ours[name]; !there || !covers(member, own) {
				return false
			}
		}
		return true
	case []any:
		ours, ok := ours.([]any)
		return ok && slices.EqualFunc(reference, ours, covers)
	}
	return reflect.DeepEqual(reference, ours)
}

// differ describes how two responses differ; empty if they agree. process is the one of the
// request.
func (c comparison) differ(reference, ours any, process string) string {
	if reference == nil && ours == nil {
		return ""
	}
	theirs, _ := reference.(map[string]any)
	own, _ := ours.(map[string]any)
	both := fmt.Sprintf("\n  reference %.600s\n  ours      %.600s", harness.MustJSON(reference), harness.MustJSON(ours))
	if theirs == nil || own == nil {
		return both
	}
	if refused, ok := theirs["error"].(map[string]any); ok {
		answer, ok := own["error"].(map[string]any)
		if !ok || !reflect.DeepEqual(refused["code"], answer["code"]) {
			return both
		}
		return ""
	}
	result, there := own["result"]
	if !there {
		return both
	}
	want, got := c.normal(theirs["result"], ""), c.normal(result, "")
	c.alignNext(want, got, process)
	if !covers(want, got) {
		return both
	}
	return ""
}

// alignNext replaces nextSeq in two results of process/read by the position in the output of
// the process, if that is known for both.
func (c comparison) alignNext(reference, ours any, process string) {
	want, _ := reference.(map[string]any)
	got, _ := ours.(map[string]any)
	theirs, isNumber := want["nextSeq"].(float64)
	own, isOwn := got["nextSeq"].(float64)
	if !isNumber || !isOwn {
		return
	}
	there, known := c.reference.before(process, uint64(theirs))
	here, knownHere := c.ours.before(process, uint64(own))
	if known && knownHere {
		want["nextSeq"], got["nextSeq"] = fmt.Sprint(there), fmt.Sprint(here)
	}
}

// progress is the output of each process by sequence number.
type progress map[string]map[uint64]harness.RPCEvent

// add adds a notification. A process whose id was used twice is not tracked.
func (p progress) add(e harness.RPCEvent) {
	if p[e.ProcessID] == nil {
		p[e.ProcessID] = map[uint64]harness.RPCEvent{}
	}
	if _, twice := p[e.ProcessID][e.Seq]; twice {
		p[e.ProcessID][0] = e
	}
	p[e.ProcessID][e.Seq] = e
}

// before returns what happened before an event: bytes per stream, and the ends.
func (p progress) before(process string, next uint64) (map[string]int, bool) {
	events := p[process]
	if _, twice := events[0]; twice {
		return nil, false
	}
	place := map[string]int{}
	for seq := uint64(1); seq < next; seq++ {
		e, known := events[seq]
		if !known {
			return nil, false
		}
		place[e.Method+" "+e.Stream] += len(e.Chunk)
	}
	return place, true
}

// eventsOf returns the notifications about processes on one connection: output by process and
// stream, the ends with their codes, and everything else by method.
func (c comparison) eventsOf(messages []map[string]any) (output map[string]string, ends []string) {
	output = map[string]string{}
	for _, message := range messages {
		method, _ := message["method"].(string)
		params, _ := message["params"].(map[string]any)
		id, _ := params["processId"].(string)
		switch method {
		case "process/output":
			output[fmt.Sprintf("%s %v", id, params["stream"])] += c.chunk(params["chunk"])
		case "process/exited":
			ends = append(ends, fmt.Sprintf("%s exited with %v", id, params["exitCode"]))
		case "process/closed":
			ends = append(ends, id+" closed")
		case "http/request/bodyDelta": // see differingBodies
		default:
			ends = append(ends, method)
		}
	}
	slices.Sort(ends)
	return output, ends
}
