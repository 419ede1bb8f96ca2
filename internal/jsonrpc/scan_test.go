package jsonrpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"unicode/utf8"
)

func validValue(data []byte) bool {
	s := newScanner(data)
	s.value(0)
	s.end()
	return s.err == nil
}

// validByReference reports by encoding/json whether Parse must accept JSON.
func validByReference(data []byte) bool {
	return json.Valid(data) && utf8.Valid(data) && !loneSurrogate(data) && withinLimits(data)
}

var escapes = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)`)

// loneSurrogate reports whether valid JSON has an unpaired surrogate.
func loneSurrogate(data []byte) bool {
	expected := -1 // the offset of the required second half of a pair
	for _, place := range escapes.FindAllIndex(data, -1) {
		code := uint64(0)
		if escape := data[place[0]:place[1]]; escape[1] == 'u' {
			code, _ = strconv.ParseUint(string(escape[2:]), 16, 16)
		}
		second := 0xdc00 <= code && code < 0xe000
		if second != (expected == place[0]) {
			return true
		}
		if expected >= 0 && expected != place[0] {
			return true
		}
		expected = -1
		if 0xd800 <= code && code < 0xdc00 {
			expected = place[1]
		}
	}
	return expected >= 0
}

// withinLimits checks valid JSON for duplicate members, and for the limits of
// depth and values.
func withinLimits(data []byte) bool {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	type level struct {
		names map[string]bool // nil in an array
		value bool            // the next token is a value
	}
	levels := []level{{value: true}}
	values := 0
	for {
		token, err := decoder.Token()
		if err != nil {
			return values <= MaxValues
		}
		within := &levels[len(levels)-1]
		switch token {
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:len(levels)-1]
			continue
		}
		if within.names != nil && !within.value {
			if within.names[token.(string)] {
				return false
			}
			within.names[token.(string)] = true
			within.value = true
			continue
		}
		values++
		within.value = within.names == nil
		switch token {
		case json.Delim('{'):
			levels = append(levels, level{names: map[string]bool{}})
		case json.Delim('['):
			levels = append(levels, level{value: true})
		}
		if len(levels)-1 > MaxDepth {
			return false
		}
	}
}

func addMessages(f *testing.F) {
	for message := range acceptedMessages {
		f.Add([]byte(message))
	}
	for message := range refusedMessages {
		f.Add([]byte(message))
	}
	for value := range refusedValues {
		f.Add([]byte(value))
		f.Add([]byte(`{"id":1,"method":"m","params":` + value + `}`))
	}
	f.Add(fmt.Appendf(nil, `{"id":1,"method":"process/write","params":{"processId":"p","chunk":"%0100d"}}`, 7))
}

func FuzzScan(f *testing.F) {
	addMessages(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, want := validValue(data), validByReference(data); got != want {
			t.Errorf("%q: valid is %v, by encoding/json %v", data, got, want)
		}
	})
}

// FuzzParse compares messages with a slow and simple decoder.
func FuzzParse(f *testing.F) {
	addMessages(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse(data)
		if err != nil {
			if !utf8.ValidString(err.Error()) && utf8.Valid(data) {
				t.Errorf("%q: the error is not UTF-8: %q", data, err)
			}
			return
		}
		if !validByReference(data) {
			t.Fatalf("%q was accepted", data)
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(data, &members); err != nil {
			t.Fatal(err)
		}
		checkMessage(t, m, members)
		checkRoundTrip(t, m)
	})
}

// checkRoundTrip encodes a parsed message and parses it again.
func checkRoundTrip(t *testing.T, m Message) {
	t.Helper()
	var written []byte
	params := any(json.RawMessage(m.Params))
	if m.Params == nil {
		params = nil
	}
	switch {
	case m.Kind == Request:
		written = AppendRequest(nil, m.ID, m.Method, params, Trace{})
	case m.Kind == Notification:
		written = AppendNotification(nil, m.Method, params)
	case m.Error != nil:
		written = AppendError(nil, m.ID, m.Error)
	default:
		written = AppendResult(nil, m.ID, json.RawMessage(m.Result))
	}
	again, err := Parse(written)
	same := err == nil && again.Kind == m.Kind && again.ID == m.ID && again.Method == m.Method &&
		sameJSON(again.Params, m.Params) && sameJSON(again.Result, m.Result) && sameError(again.Error, m.Error)
	if !same {
		t.Errorf("%+v is encoded as %s and parsed as %+v, %v", m, written, again, err)
	}
}

// sameJSON ignores white space that encoding/json may remove.
func sameJSON(one, other []byte) bool {
	if one == nil || other == nil {
		return one == nil && other == nil
	}
	var tight [2]bytes.Buffer
	return json.Compact(&tight[0], one) == nil && json.Compact(&tight[1], other) == nil &&
		bytes.Equal(tight[0].Bytes(), tight[1].Bytes())
}

func sameError(one, other *Error) bool {
	if one == nil || other == nil {
		return one == other
	}
	data := func(e *Error) []byte { raw, _ := e.Data.(json.RawMessage); return raw }
	return one.Code == other.Code && one.Message == other.Message && sameJSON(data(one), data(other))
}

func checkMessage(t *testing.T, m Message, members map[string]json.RawMessage) {
	t.Helper()
	_, hasID := members["id"]
	_, hasMethod := members["method"]
	result, hasResult := members["result"]
	var want Kind
	switch {
	case hasMethod && hasID:
		want = Request
	case hasMethod:
		want = Notification
	default:
		want = Response
	}
	if m.Kind != want {
		t.Errorf("the kind is %v, want %v", m.Kind, want)
	}
	if hasMethod {
		var method string
		if err := json.Unmarshal(members["method"], &method); err != nil || method != m.Method {
			t.Errorf("the method is %q, want %q", m.Method, method)
		}
		if !bytes.Equal(m.Params, members["params"]) {
			t.Errorf("the parameters are %q, want %q", m.Params, members["params"])
		}
	} else if !bytes.Equal(m.Result, result) || (m.Error == nil) != hasResult {
		t.Errorf("the result is %q, the error %v, want %q", m.Result, m.Error, result)
	}
	if hasID {
		checkID(t, m.ID, members["id"])
	}
}

func checkID(t *testing.T, got ID, raw []byte) {
	t.Helper()
	var want any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&want); err != nil {
		t.Fatal(err)
	}
	if text, ok := want.(string); ok && got != TextID(text) || !ok && got.String() != fmt.Sprint(want) {
		t.Errorf("the id is %v, want %s", got, raw)
	}
}

// FuzzDecodeParams compares the decoding of objects with encoding/json.
func FuzzDecodeParams(f *testing.F) {
	for _, params := range []string{`null`, `{"processId":"p","afterSeq":1,"maxBytes":null,"waitMs":18446744073709551615,"x":[{}]}`, `["p",1,null,3]`,
		`{"processId":"p","afterSeq":-1}`, `{"processId":"p","afterSeq":1.0}`, `{"ProcessId":"p"}`} {
		f.Add([]byte(params))
	}
	f.Fuzz(func(t *testing.T, params []byte) {
		var got readParams
		failed := DecodeParams(params, &got)
		_ = DecodeParams(params, new(everything))
		if !validByReference(params) {
			if failed == nil {
				t.Errorf("%q was accepted", params)
			}
			return
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(params, &members) != nil || members == nil {
			return
		}
		var id *string
		accept := json.Unmarshal(members["processId"], &id) == nil && id != nil
		numbers := [3]*uint64{}
		for i, name := range []string{"afterSeq", "maxBytes", "waitMs"} {
			if raw, ok := members[name]; ok && json.Unmarshal(raw, &numbers[i]) != nil {
				accept = false
			}
		}
		if accept != (failed == nil) {
			t.Fatalf("%s: %v, accepted by encoding/json: %v", params, failed, accept)
		}
		if !accept {
			return
		}
		for i, number := range []*uint64{got.AfterSeq, got.MaxBytes, got.WaitMS} {
			if (number == nil) != (numbers[i] == nil) || number != nil && *number != *numbers[i] {
				t.Errorf("%s: number %d is %v, want %v", params, i, number, numbers[i])
			}
		}
		if got.ProcessID != *id {
			t.Errorf("%s: the id is %q, want %q", params, got.ProcessID, *id)
		}
	})
}
