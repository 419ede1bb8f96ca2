package jsonrpc

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
)

// result has characters that encoding/json would escape for HTML.
type result struct {
	Zeta  string         `json:"zeta"`
	Alpha int            `json:"alpha"`
	Map   map[string]int `json:"map,omitempty"`
}

func TestAppend(t *testing.T) {
	for _, c := range []struct{ got, want []byte }{
		{AppendResult(nil, NumberID(1), struct{}{}), []byte(`{"id":1,"result":{}}`)},
		{AppendResult(nil, TextID(""), nil), []byte(`{"id":"","result":null}`)},
		{AppendResult(nil, TextID("é\"\n"), result{"<&>\u2028", 1, map[string]int{"b": 1, "a": 2}}),
			[]byte(`{"id":"é\"\n","result":{"zeta":"<&>\u2028","alpha":1,"map":{"a":2,"b":1}}}`)},
		{AppendResult([]byte("before"), NumberID(math.MinInt64), []int{1}), []byte(`before{"id":-9223372036854775808,"result":[1]}`)},
		{AppendResult([]byte("before"), NumberID(1), make(chan int)),
			[]byte(`before{"error":{"code":-32603,"message":"the result cannot be encoded: json: unsupported type: chan int"},"id":1}`)},

		{AppendError(nil, NoID, Errorf(CodeInvalidRequest, "no %q", "x")), []byte(`{"error":{"code":-32600,"message":"no \"x\""},"id":-1}`)},
		{AppendError(nil, NumberID(2), &Error{Code: 5, Message: "m", Data: InvalidField{Reason: "R", Field: "f"}}),
			[]byte(`{"error":{"code":5,"data":{"field":"f","reason":"R"},"message":"m"},"id":2}`)},
		{AppendError(nil, NumberID(2), &Error{Code: 5, Data: make(chan int)}), []byte(`{"error":{"code":5,"message":""},"id":2}`)},

		{AppendRequest(nil, NumberID(3), "m/n", nil, Trace{State: "a=1"}), []byte(`{"id":3,"method":"m/n"}`)},
		{AppendRequest(nil, NumberID(3), "m/n", nil, Trace{Parent: "00-a"}), []byte(`{"id":3,"method":"m/n","trace":{"traceparent":"00-a"}}`)},
		{AppendRequest(nil, NumberID(3), "m/n", nil, Trace{"00-a", "a=1"}), []byte(`{"id":3,"method":"m/n","trace":{"traceparent":"00-a","tracestate":"a=1"}}`)},
		{AppendRequest(nil, NumberID(3), "m/n", result{}, Trace{}), []byte(`{"id":3,"method":"m/n","params":{"zeta":"","alpha":0}}`)},
		{AppendNotification(nil, "initialized", nil), []byte(`{"method":"initialized"}`)},
		{AppendNotification([]byte("before"), "m", []string{"<"}), []byte(`before{"method":"m","params":["<"]}`)},
	} {
		if !bytes.Equal(c.got, c.want) {
			t.Errorf("got  %s\nwant %s", c.got, c.want)
		}
	}
}

func TestAppendNotification_InvalidJSON_Panics(t *testing.T) {
	defer func() {
		if message, _ := recover().(string); !strings.Contains(message, "parameters of m: json: unsupported type") {
			t.Errorf("the panic is %q", message)
		}
	}()
	AppendNotification(nil, "m", make(chan int))
}

// appendOutput encodes a frequent notification.
func appendOutput(dst []byte, process string, seq uint64, chunk []byte) []byte {
	dst = append(dst, `{"method":"process/output","params":{"processId":`...)
	dst = AppendString(dst, process)
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendUint(dst, seq, 10)
	dst = append(dst, `,"stream":"stdout","chunk":`...)
	dst = AppendBase64(dst, chunk)
	return append(dst, `}}`...)
}

func TestAppend_DoesNotAllocate(t *testing.T) {
	chunk := bytes.Repeat([]byte{0xff, 0}, 16<<10)
	message := make([]byte, 0, 64<<10)
	if got := testing.AllocsPerRun(100, func() { message = appendOutput(message[:0], "p-1", 7, chunk) }); got != 0 {
		t.Errorf("an output notification allocates %v times", got)
	}
	if !json.Valid(message) {
		t.Errorf("invalid: %.100s", message)
	}
}

// referenceJSON encodes with encoding/json, without HTML escaping.
func referenceJSON(t *testing.T, value any) []byte {
	t.Helper()
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n"))
}

func FuzzAppendString(f *testing.F) {
	var ascii []byte
	for c := range 0x80 {
		ascii = append(ascii, byte(c))
	}
	for _, text := range []string{"", "plain", string(ascii), "é😀\u2027\u2028\u2029\u202a\ufffd\ufffe", "\xff\xc3(\xed\xa0\x80\xf4\x90\x80\x80", "12345678\"12345678\\", "1234567é1234567\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		want := referenceJSON(t, text)
		if got := AppendString(nil, text); !bytes.Equal(got, want) {
			t.Errorf("string %q:\n got %s\nwant %s", text, got, want)
		}
		if got := AppendString([]byte("before"), []byte(text)); !bytes.Equal(got, append([]byte("before"), want...)) {
			t.Errorf("bytes %q:\n got %s\nwant %s", text, got, want)
		}
	})
}

func FuzzID(f *testing.F) {
	f.Add(int64(0), "")
	f.Add(int64(math.MinInt64), "-1")
	f.Add(int64(math.MaxInt64), "\\u0041\"\x00é\u2028\U0010ffff")
	f.Fuzz(func(t *testing.T, number int64, text string) {
		for _, id := range []ID{NumberID(number), TextID(strings.ToValidUTF8(text, "\ufffd"))} {
			for _, message := range [][]byte{AppendRequest(nil, id, "m", nil, Trace{}), AppendResult(nil, id, 1), AppendError(nil, id, &Error{})} {
				if got, err := Parse(message); err != nil || got.ID != id {
					t.Errorf("%s was parsed as %v, %v", message, got.ID, err)
				}
			}
		}
	})
}
