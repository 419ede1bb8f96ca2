package conformance

import (
	"encoding/json"
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"maps"
	"slices"
	"strings"
)

// ourTalk returns the messages of a replay with their responses, as the server under test gave them.
func (r *replay) ourTalk() []exchanged {
	var events []harness.TranscriptEvent
	for _, e := range r.events {
		if isSend(e) {
			events = append(events, e)
		}
	}
	for _, name := range r.order {
		for _, frame := range r.conns[name].Record() {
			if frame.Kind == "text" {
				events = append(events, harness.TranscriptEvent{Conn: name, Direction: "<", Kind: frame.Kind, Value: frame.Data})
			}
		}
	}
	return dialogue(events)
}

// verdict compares our side of a replay with the reference's. It returns the allowances that
// were needed.
func (r *replay) verdict() (needed []string) {
	r.Helper()
	ours := r.ourTalk()
	for index, m := range r.talk {
		how := r.comparison(m.conn).differ(m.reply, ours[index].reply, r.processOf(m))
		needed = append(needed, r.judge(fmt.Sprint(index), fmt.Sprintf("%.400s", r.events[m.at].Value), how)...)
	}
	var how strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.conns)) {
		how.WriteString(r.differingEvents(name))
	}
	return append(needed, r.judge("notifications", "notifications", how.String())...)
}

// judge reports a difference that is not allowed, and returns the keys that allow it.
func (r *replay) judge(key, what, how string) []string {
	r.Helper()
	if how == "" {
		return nil
	}
	var keys []string
	for _, key := range []string{r.scenario, r.scenario + ":" + key} {
		if r.allowed[key] != "" {
			keys = append(keys, key)
		}
	}
	if keys == nil {
		r.Errorf("%s:%s differs: %s%s", r.scenario, key, what, how)
	}
	return keys
}

// comparison returns the comparison for a connection.
func (r *replay) comparison(conn string) comparison {
	_, read := r.places()
	c := comparison{place: read, reference: progress{}, ours: progress{}}
	for _, e := range r.events {
		if news, ok := processEvent(e); ok && e.Conn == conn {
			c.reference.add(news)
		}
	}
	for _, frame := range r.conns[conn].Record() {
		if frame.Event != nil {
			c.ours.add(*frame.Event)
		}
	}
	return c
}

// processOf returns the process of a message.
func (r *replay) processOf(m exchanged) string {
	var request struct{ Params struct{ ProcessID string } }
	_ = json.Unmarshal(r.events[m.at].Value, &request)
	return request.Params.ProcessID
}

// differingEvents describes how the notifications on a connection differ.
func (r *replay) differingEvents(conn string) string {
	var theirs, own []map[string]any
	for _, e := range r.events {
		if value, ok := harness.DecodeAny(e.Value).(map[string]any); ok && e.Conn == conn && e.Direction == "<" && value["method"] != nil {
			theirs = append(theirs, value)
		}
	}
	for _, frame := range r.conns[conn].Record() {
		if value, ok := harness.DecodeAny(frame.Data).(map[string]any); ok && frame.Method != "" {
			own = append(own, value)
		}
	}
	c := r.comparison(conn)
	wantOutput, wantEnds := c.eventsOf(theirs)
	gotOutput, gotEnds := c.eventsOf(own)
	var how strings.Builder
	for _, stream := range slices.Sorted(maps.Keys(merged(wantOutput, gotOutput))) {
		if wantOutput[stream] != gotOutput[stream] {
			fmt.Fprintf(&how, "\n  %s on connection %s: reference %.500q, ours %.500q", stream, conn, wantOutput[stream], gotOutput[stream])
		}
	}
	if !slices.Equal(wantEnds, gotEnds) {
		fmt.Fprintf(&how, "\n  on connection %s: reference %q, ours %q", conn, without(wantEnds, gotEnds), without(gotEnds, wantEnds))
	}
	how.WriteString(differingBodies(theirs, own))
	return how.String()
}

func merged[V any](a, b map[string]V) map[string]V {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// without returns a without the items of b.
func without(a, b []string) []string {
	left := slices.Clone(b)
	var rest []string
	for _, item := range a {
		if i := slices.Index(left, item); i >= 0 {
			left = slices.Delete(left, i, i+1)
			continue
		}
		rest = append(rest, item)
	}
	return rest
}
