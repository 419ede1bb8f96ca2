package conformance

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"github.com/execwire/execwire/integration/harness"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The versions of the reference whose conversations were recorded: 0.132.0 and
// 0.169.0.
const (
	oldVersion = "OLD"
	newVersion = "NEW"
)

// isSend reports whether the client sent a message.
func isSend(e harness.TranscriptEvent) bool {
	return e.Direction == ">" && (e.Kind == "text" || e.Kind == "binary")
}

// note returns the text of a remark; empty for other events.
func note(e harness.TranscriptEvent) string {
	var note struct{ Msg string }
	if e.Kind != "note" || json.Unmarshal(e.Value, &note) != nil {
		return ""
	}
	return note.Msg
}

func transcriptPath(version, scenario string) string {
	return filepath.Join("testdata", version, scenario+".jsonl")
}

// readTranscript reads a recorded conversation.
func readTranscript(t testing.TB, version, scenario string) []harness.TranscriptEvent {
	t.Helper()
	data, err := os.ReadFile(transcriptPath(version, scenario))
	if err != nil {
		t.Fatal(err)
	}
	var events []harness.TranscriptEvent
	for line := range bytes.Lines(data) {
		var e harness.TranscriptEvent
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%s of %s: %v", scenario, version, err)
		}
		events = append(events, e)
	}
	return events
}

// scenariosOf returns the scenarios recorded with a version.
func scenariosOf(t testing.TB, version string) []string {
	t.Helper()
	files, err := filepath.Glob(transcriptPath(version, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no transcripts of %s: %v", version, err)
	}
	var names []string
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".jsonl"))
	}
	return names
}

// exchanged is a message of the client and its response.
type exchanged struct {
	conn, id string // id is that in JSON; -1 for what has none
	at       int    // where the message is among the events
	replyAt  int    // where the answer is; -1 if there is none
	reply    any    // nil if there is none
}

// dialogue pairs messages with responses like the shared compare.py.
func dialogue(events []harness.TranscriptEvent) []exchanged {
	var list []exchanged
	open := map[string][]int{}
	for at, e := range events {
		if e.Kind != "text" && e.Kind != "binary" {
			continue
		}
		value, _ := harness.DecodeAny(e.Value).(map[string]any)
		if isSend(e) {
			id := "-1"
			_, hasMethod := value["method"]
			if given, ok := value["id"]; ok && hasMethod {
				id = harness.MustJSON(given)
			}
			key := e.Conn + " " + id
			open[key] = append(open[key], len(list))
			list = append(list, exchanged{conn: e.Conn, id: id, at: at, replyAt: -1})
			continue
		}
		if key := e.Conn + " " + harness.MustJSON(value["id"]); isReply(value) && len(open[key]) > 0 {
			first := open[key][0]
			open[key] = open[key][1:]
			list[first].replyAt, list[first].reply = at, value
		}
	}
	return list
}

func isReply(value map[string]any) bool {
	_, isResult := value["result"]
	_, isError := value["error"]
	return isResult || isError
}

// allowances are deliberate differences from a version, with their reasons. The key is a
// scenario, or a scenario, a colon, and the index of a message of the client or
// "notifications".
type allowances map[string]string

var allowanceKey = regexp.MustCompile(`^[0-9a-zA-Z_]+(:([0-9]+|notifications))?$`)

// readAllowances reads the file that compare.py reads too.
func readAllowances(t testing.TB, version string) allowances {
	t.Helper()
	path := filepath.Join("testdata", "allow-"+version+".txt")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	allowed := allowances{}
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		key, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case key == "":
			continue
		case !allowanceKey.MatchString(key) || strings.TrimSpace(reason) == "":
			t.Errorf("%s: %q is not SCENARIO[:INDEX] and a reason", path, line)
		case allowed[key] != "":
			t.Errorf("%s: %s is allowed twice", path, key)
		case strings.HasPrefix(reason, "recorder: "):
			continue // a replay waits where the recorder sleeps
		}
		allowed[key] = reason
	}
	return allowed
}

// cutText is the placeholder of transcripts for long strings.
var cutText = regexp.MustCompile(`"([^"]*)<<cut: (\d+) chars in all, sha256 [0-9a-f]+>>"`)

// restoreCut restores strings of the client that a transcript truncated: base64 of some MiB of
// the letter a, or the letter x.
func restoreCut(text string) string {
	return cutText.ReplaceAllStringFunc(text, func(cut string) string {
		groups := cutText.FindStringSubmatch(cut)
		for _, candidate := range []string{
			base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("a"), 1<<20)),
			base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("a"), 2<<20)),
			strings.Repeat("x", 5000),
		} {
			if strings.HasPrefix(candidate, groups[1]) && strconv.Itoa(len(candidate)) == groups[2] {
				return `"` + candidate + `"`
			}
		}
		panic("nobody knows what was cut from " + cut)
	})
}

// sortedKeys returns the keys of an allowance in a stable order.
func (a allowances) sortedKeys() []string {
	var keys []string
	for key := range a {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// scenarioOf returns the scenario of an allowance's key.
func scenarioOf(key string) string {
	scenario, _, _ := strings.Cut(key, ":")
	return scenario
}
