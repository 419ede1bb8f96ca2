package integration

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
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

// transcriptEvent is a line of a transcript.
type transcriptEvent struct {
	Conn      string          `json:"c"` // "-" is none
	Direction string          `json:"d"` // ">" from the client, "<" from the server, "#" a remark
	Kind      string          `json:"k"` // as in rpcFrame, or "note", "http"
	Value     json.RawMessage `json:"v"`
	Raw       *string         `json:"raw"` // a text that is no JSON
	Hex       string          `json:"hex"` // a binary frame
}

// isSend tells whether the client sent a message.
func (e transcriptEvent) isSend() bool {
	return e.Direction == ">" && (e.Kind == "text" || e.Kind == "binary")
}

// note is what a remark says; empty if the event is none.
func (e transcriptEvent) note() string {
	var note struct{ Msg string }
	if e.Kind != "note" || json.Unmarshal(e.Value, &note) != nil {
		return ""
	}
	return note.Msg
}

func transcriptPath(version, scenario string) string {
	return filepath.Join("testdata", "conformance", version, scenario+".jsonl")
}

// readTranscript reads a recorded conversation.
func readTranscript(t testing.TB, version, scenario string) []transcriptEvent {
	t.Helper()
	data, err := os.ReadFile(transcriptPath(version, scenario))
	if err != nil {
		t.Fatal(err)
	}
	var events []transcriptEvent
	for line := range bytes.Lines(data) {
		var e transcriptEvent
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%s of %s: %v", scenario, version, err)
		}
		events = append(events, e)
	}
	return events
}

// scenariosOf are the scenarios recorded with a version.
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

// exchanged is a message of the client and its answer.
type exchanged struct {
	conn, id string // id is that in JSON; -1 for what has none
	at       int    // where the message is among the events
	replyAt  int    // where the answer is; -1 if there is none
	reply    any    // nil if there is none
}

// dialogue pairs messages with answers in the way of the shared compare.py.
func dialogue(events []transcriptEvent) []exchanged {
	var list []exchanged
	open := map[string][]int{}
	for at, e := range events {
		if e.Kind != "text" && e.Kind != "binary" {
			continue
		}
		value, _ := decodeAny(e.Value).(map[string]any)
		if e.isSend() {
			id := "-1"
			_, hasMethod := value["method"]
			if given, ok := value["id"]; ok && hasMethod {
				id = mustJSON(given)
			}
			key := e.Conn + " " + id
			open[key] = append(open[key], len(list))
			list = append(list, exchanged{conn: e.Conn, id: id, at: at, replyAt: -1})
			continue
		}
		if key := e.Conn + " " + mustJSON(value["id"]); isReply(value) && len(open[key]) > 0 {
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

// decodeAny decodes JSON; nil if it is none.
func decodeAny(text []byte) any {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return nil
	}
	return value
}

// allowances are deliberate differences from a version, each with its reason.
// The key is a scenario, or a scenario, a colon, and the index of a message of
// the client or "notifications".
type allowances map[string]string

var allowanceKey = regexp.MustCompile(`^[0-9a-zA-Z_]+(:([0-9]+|notifications))?$`)

// readAllowances reads the file that compare.py takes as well.
func readAllowances(t testing.TB, version string) allowances {
	t.Helper()
	path := filepath.Join("testdata", "conformance", "allow-"+version+".txt")
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

// cutText is what transcripts have in place of long strings.
var cutText = regexp.MustCompile(`"([^"]*)<<cut: (\d+) chars in all, sha256 [0-9a-f]+>>"`)

// restoreCut writes out strings of the client that a transcript cut: base64 of
// some MiB of the letter a, or the letter x.
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

// sortedKeys are those of an allowance, for messages in a stable order.
func (a allowances) sortedKeys() []string {
	var keys []string
	for key := range a {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// scenarioOf is the scenario of an allowance's key.
func scenarioOf(key string) string {
	scenario, _, _ := strings.Cut(key, ":")
	return scenario
}
