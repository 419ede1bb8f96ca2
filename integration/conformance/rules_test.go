package conformance

import (
	"github.com/execwire/execwire/integration/harness"
	"strings"
	"testing"
)

// The rules of comparison permit exactly what may differ.
func TestComparison_DetectsDifferences(t *testing.T) {
	for _, test := range []struct {
		name, reference, ours string
		differs               bool
	}{
		{"same", `{"id":1,"result":{"running":true}}`, `{"id":1,"result":{"running":true}}`, false},
		{"another value", `{"id":1,"result":{"running":true}}`, `{"id":1,"result":{"running":false}}`, true},
		{"a member less", `{"id":1,"result":{"a":1,"b":2}}`, `{"id":1,"result":{"a":1}}`, true},
		{"a member more", `{"id":1,"result":{"a":1}}`, `{"id":1,"result":{"a":1,"b":2}}`, false},
		{"another text", `{"id":1,"error":{"code":-32600,"message":"x"}}`, `{"id":1,"error":{"code":-32600,"message":"y"}}`, false},
		{"another code", `{"id":1,"error":{"code":-32600,"message":"x"}}`, `{"id":1,"error":{"code":-32602,"message":"x"}}`, true},
		{"an error for a result", `{"id":1,"result":{}}`, `{"id":1,"error":{"code":-32600}}`, true},
		{"a result for an error", `{"id":1,"error":{"code":-32600}}`, `{"id":1,"result":{}}`, true},
		{"no answer", `{"id":1,"result":{}}`, ``, true},
		{"an answer too much", ``, `{"id":1,"result":{}}`, true},
		{"none at all", ``, ``, false},
		{"other chunks", `{"result":{"chunks":[{"stream":"stdout","chunk":"YWI="}]}}`,
			`{"result":{"chunks":[{"stream":"stdout","chunk":"YQ=="},{"stream":"stdout","chunk":"Yg=="}]}}`, false},
		{"other output", `{"result":{"chunks":[{"stream":"stdout","chunk":"YWI="}]}}`,
			`{"result":{"chunks":[{"stream":"stdout","chunk":"YWM="}]}}`, true},
		{"another stream", `{"result":{"chunks":[{"stream":"stdout","chunk":"YWI="}]}}`,
			`{"result":{"chunks":[{"stream":"stderr","chunk":"YWI="}]}}`, true},
		{"entries in another order", `{"result":{"entries":[{"fileName":"a"},{"fileName":"b"}]}}`,
			`{"result":{"entries":[{"fileName":"b"},{"fileName":"a"}]}}`, false},
		{"an entry less", `{"result":{"entries":[{"fileName":"a"},{"fileName":"b"}]}}`,
			`{"result":{"entries":[{"fileName":"b"}]}}`, true},
		{"the directory of this run", `{"result":{"path":"${TMP}/f"}}`, `{"result":{"path":"/tmp/here/f"}}`, false},
		{"another directory", `{"result":{"path":"${TMP}/f"}}`, `{"result":{"path":"/tmp/there/f"}}`, true},
		{"the same number for another place", `{"result":{"nextSeq":2}}`, `{"result":{"nextSeq":2}}`, true},
		{"the same number for an unknown place", `{"result":{"nextSeq":9}}`, `{"result":{"nextSeq":9}}`, false},
		{"the same place", `{"result":{"nextSeq":2}}`, `{"result":{"nextSeq":3}}`, false},
		{"another place", `{"result":{"nextSeq":2}}`, `{"result":{"nextSeq":4}}`, true},
	} {
		c := comparison{place: strings.NewReplacer("/tmp/here", "${TMP}"), reference: progress{}, ours: progress{}}
		for seq, chunk := range map[uint64]string{1: "ab", 2: "c"} {
			c.reference.add(harness.RPCEvent{ProcessID: "p", Seq: seq, Stream: "stdout", Chunk: []byte(chunk), Method: "process/output"})
		}
		for seq, chunk := range map[uint64]string{1: "a", 2: "b", 3: "c"} {
			c.ours.add(harness.RPCEvent{ProcessID: "p", Seq: seq, Stream: "stdout", Chunk: []byte(chunk), Method: "process/output"})
		}
		how := c.differ(harness.DecodeAny([]byte(test.reference)), harness.DecodeAny([]byte(test.ours)), "p")
		if (how != "") != test.differs {
			t.Errorf("%s: the comparison returns %q", test.name, how)
		}
	}
}

// The dialogue of a transcript matches compare.py, whose indexes the allowances use.
func TestTranscript_Dialogue(t *testing.T) {
	event := func(direction, value string) harness.TranscriptEvent {
		return harness.TranscriptEvent{Conn: "c", Direction: direction, Kind: "text", Value: []byte(value)}
	}
	talk := dialogue([]harness.TranscriptEvent{
		event(">", `{"id":1,"method":"a"}`),
		event(">", `{"method":"initialized"}`),
		event(">", `{"id":"x","method":"b"}`),
		event("<", `{"id":"x","result":{}}`),
		event("<", `{"method":"process/closed","params":{}}`),
		event("<", `{"id":-1,"error":{"code":-32600}}`),
		event(">", `{"id":1,"method":"c"}`),
		event("<", `{"id":1,"result":{"of":"a"}}`),
	})
	for i, want := range []int{7, 5, 3, -1} {
		if talk[i].replyAt != want {
			t.Errorf("message %d is answered by event %d, want %d", i, talk[i].replyAt, want)
		}
	}
}
