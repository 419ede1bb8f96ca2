package jsonrpc

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// request is the form of most accepted messages below.
func request(id ID, params string) Message {
	m := Message{Kind: Request, ID: id, Method: "m"}
	if params != "" {
		m.Params = []byte(params)
	}
	return m
}

var acceptedMessages = map[string]Message{
	`{"id":1,"method":"m"}`:                                         request(NumberID(1), ""),
	`{"id":1,"method":"m","params":null}`:                           request(NumberID(1), `null`),
	"\t{ \"id\" : 1 ,\r\n\"method\":\"m\", \"params\" : [ 1 ] } \n": request(NumberID(1), `[ 1 ]`),
	`{"params":{"a":{"a":[]}},"method":"m","id":1}`:                 request(NumberID(1), `{"a":{"a":[]}}`),
	`{"jsonrpc":"1.0","id":1,"method":"m","extra":{"id":2}}`:        request(NumberID(1), ""),
	`{"\u0069d":1,"m\u0065thod":"\u006d"}`:                          request(NumberID(1), ""),
	`{"ID":2,"id":1,"method":"m"}`:                                  request(NumberID(1), ""),
	`{"id":1,"method":"m","result":5,"error":"x"}`:                  request(NumberID(1), ""),
	`{"id":"","method":"m"}`:                                        request(TextID(""), ""),
	`{"id":"1","method":"m"}`:                                       request(TextID("1"), ""),
	`{"id":"\u00e9\n\ud83d\ude00","method":"m"}`:                    request(TextID("é\n😀"), ""),
	`{"id":0,"method":"m"}`:                                         request(NumberID(0), ""),
	`{"id":-1,"method":"m"}`:                                        request(NoID, ""),
	`{"id":9223372036854775807,"method":"m"}`:                       request(NumberID(1<<63-1), ""),
	`{"id":-9223372036854775808,"method":"m"}`:                      request(NumberID(-1<<63), ""),
	`{"id":1,"method":""}`:                                          {Kind: Request, ID: NumberID(1)},
	`{"id":1,"method":"m","trace":null}`:                            request(NumberID(1), ""),
	`{"method":"initialized"}`:                                      {Kind: Notification, Method: "initialized"},
	`{"method":"m","trace":{}}`:                                     {Kind: Notification, Method: "m", Trace: &Trace{}},
	`{"method":"m","trace":{"tracestate":null,"traceparent":"00-1","x":1}}`: {Kind: Notification, Method: "m",
		Trace: &Trace{Parent: "00-1"}},
	`{"id":7,"result":null}`:                               {Kind: Response, ID: NumberID(7), Result: []byte(`null`)},
	`{"id":7,"result":{},"error":{"code":1,"message":""}}`: {Kind: Response, ID: NumberID(7), Result: []byte(`{}`)},
	`{"id":7,"error":{"code":-32600,"message":"no","x":1}}`: {Kind: Response, ID: NumberID(7),
		Error: &Error{Code: CodeInvalidRequest, Message: "no"}},
	`{"error":{"message":"no","data":{"a":[1]},"code":5},"id":7}`: {Kind: Response, ID: NumberID(7),
		Error: &Error{Code: 5, Message: "no", Data: json.RawMessage(`{"a":[1]}`)}},
}

func TestParse(t *testing.T) {
	for input, want := range acceptedMessages {
		got, err := Parse([]byte(input))
		if err != nil {
			t.Errorf("%s: %v", input, err)
			continue
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(ID{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", input, diff)
		}
	}
}

const idError = "data did not match any variant of untagged enum RequestId: an id is a string or an integer of 64 bits"

// refusedMessages are malformed messages and their errors. Where the reference
// was recorded, the errors are its own.
var refusedMessages = map[string]string{
	``:                                 "EOF while parsing a value at line 1 column 0",
	` `:                                "EOF while parsing a value at line 1 column 1",
	"\n":                               "EOF while parsing a value at line 2 column 0",
	`not json`:                         "expected ident at line 1 column 2",
	"\ufeff{}":                         "expected value at line 1 column 1",
	"\xff\xfe\x00":                     "expected value at line 1 column 1",
	`{"id":1,"method":`:                "EOF while parsing a value at line 1 column 17",
	`{"id":4,"method":"process/read",`: "EOF while parsing a value at line 1 column 32",
	`{"id":1,"method":"process/read","params":{"processId":"p"}} trailing`:    "trailing characters at line 1 column 61",
	"{\"id\":1,\"method\":\"m\"}\n{\"id\":2,\"method\":\"m\"}":                "trailing characters at line 2 column 1",
	`{"id":1,"id":2,"method":"process/read"}`:                                 "duplicate JSON object key `id` at line 1 column 12",
	`{"id":1,"method":"process/read","params":{"processId":"p"},"params":{}}`: "duplicate JSON object key `params` at line 1 column 67",
	`{"id":1,"\u0069d":2,"method":"m"}`:                                       "duplicate JSON object key `id` at line 1 column 17",
	`{"id":1,"method":"m","params":[{"a":1,"a":1}]}`:                          "duplicate JSON object key `a` at line 1 column 41",
	`{"id":1,"method":"process/read","params":{"processId":"p\ud800"}}`:       "unexpected end of hex escape at line 1 column 63",
	`{"id":1,"method":"\ud800\u0041"}`:                                        "lone leading surrogate in hex escape at line 1 column 30",
	`{"id":1,"method":"\udc00\ud800"}`:                                        "lone leading surrogate in hex escape at line 1 column 30",

	`[]`:                          "expected a JSON-RPC object",
	`[{"id":1,"method":"m"}]`:     "expected a JSON-RPC object",
	`5`:                           "expected a JSON-RPC object",
	`"x"`:                         "expected a JSON-RPC object",
	`null`:                        "expected a JSON-RPC object",
	`true`:                        "expected a JSON-RPC object",
	`{}`:                          "missing field `error`",
	`{"id":1}`:                    "missing field `error`",
	`{"result":{}}`:               "missing field `id`",
	`{"id":1,"error":"x"}`:        "invalid type: string \"x\", expected struct ResponseError",
	`{"id":1,"error":null}`:       "invalid type: null, expected struct ResponseError",
	`{"id":1,"error":{"code":1}}`: "missing field `message`",
	`{"id":1,"error":{"code":"1","message":""}}`:      "invalid type: string \"1\", expected i64",
	`{"id":1,"method":5}`:                             "invalid type: integer `5`, expected a string",
	`{"id":1,"method":null}`:                          "invalid type: null, expected a string",
	`{"id":1,"method":"m","trace":5}`:                 "invalid type: integer `5`, expected struct W3cTraceContext",
	`{"id":1,"method":"m","trace":{"traceparent":5}}`: "invalid type: integer `5`, expected a string",

	`{"id":1.5,"method":"m"}`:                  idError,
	`{"id":1000.0,"method":"m"}`:               idError,
	`{"id":1e3,"method":"m"}`:                  idError,
	`{"id":-0,"method":"m"}`:                   idError,
	`{"id":9223372036854775808,"method":"m"}`:  idError,
	`{"id":-9223372036854775809,"method":"m"}`: idError,
	`{"id":null,"method":"m"}`:                 idError,
	`{"id":true,"method":"m"}`:                 idError,
	`{"id":[],"method":"m"}`:                   idError,
	`{"id":{},"result":1}`:                     idError,
}

func TestParse_Errors(t *testing.T) {
	for input, want := range refusedMessages {
		m, err := Parse([]byte(input))
		if err == nil {
			t.Errorf("%q was accepted: %+v", input, m)
		} else if err.Error() != want {
			t.Errorf("%q:\n got %s\nwant %s", input, err, want)
		}
	}
}

// refusedValues are malformed values within {"id":1,"method":"m","params":…},
// after 31 bytes.
var refusedValues = map[string]string{
	`{`:                "EOF while parsing an object",
	`{"a`:              "EOF while parsing a string",
	`{"a"`:             "EOF while parsing an object",
	`{"a":`:            "EOF while parsing a value",
	`{"a":1`:           "EOF while parsing an object",
	`{"a":1,`:          "EOF while parsing a value",
	`[`:                "EOF while parsing a list",
	`[1`:               "EOF while parsing a list",
	`[1,`:              "EOF while parsing a value",
	`"\`:               "EOF while parsing a string",
	`"\u00`:            "EOF while parsing a string",
	`tru`:              "EOF while parsing a value",
	`-`:                "EOF while parsing a value",
	`1.`:               "EOF while parsing a value",
	`1e+`:              "EOF while parsing a value",
	`{a}`:              "key must be a string",
	`{1:2}`:            "key must be a string",
	`{,}`:              "key must be a string",
	`{"a" 1}`:          "expected `:`",
	`{"a":1;}`:         "expected `,` or `}`",
	`{"a":1,}`:         "trailing comma",
	`{"a":}`:           "expected value",
	`[1 2]`:            "expected `,` or `]`",
	`[1,]`:             "trailing comma",
	`[,1]`:             "expected value",
	`01`:               "invalid number",
	`-01`:              "invalid number",
	`-x`:               "invalid number",
	`1.x`:              "invalid number",
	`1e` + `x`:         "invalid number",
	`+1`:               "expected value",
	`.5`:               "expected value",
	`NaN`:              "expected value",
	`nul1`:             "expected ident",
	`'a'`:              "expected value",
	`"\x"`:             "invalid escape",
	`"\u00g0"`:         "invalid escape",
	"\"a\nb\"":         "control character (\\u0000-\\u001F) found while parsing a string",
	"\"a\x00b\"":       "control character (\\u0000-\\u001F) found while parsing a string",
	"\"a\xffb\"":       "invalid unicode code point: the text is not UTF-8",
	"\"\xed\xa0\x80\"": "invalid unicode code point: the text is not UTF-8",
	"\"é\\n\xc3\"":     "invalid unicode code point: the text is not UTF-8",
	"/* */ 1":          "expected value",
}

func TestParse_InvalidJSON_Fails(t *testing.T) {
	for value, want := range refusedValues {
		_, err := Parse([]byte(`{"id":1,"method":"m","params":` + value))
		if err == nil || !strings.HasPrefix(err.Error(), want+" at line ") {
			t.Errorf("%q: %v, want %s", value, err, want)
		}
	}
}

func TestParse_LongMemberName_IsTruncatedInError(t *testing.T) {
	name := strings.Repeat("é", 1<<20)
	_, err := Parse(fmt.Appendf(nil, `{"%s":1,"%s":2}`, name, name))
	if err == nil || len(err.Error()) > 200 || !strings.Contains(err.Error(), "éé…`") {
		t.Errorf("the error has %d bytes: %.300v", len(err.Error()), err)
	}
}

func TestParse_MaxDepth(t *testing.T) {
	for _, brackets := range []string{"[]", "{}"} {
		open, inner := brackets[:1], brackets
		if open == "{" {
			open = `{"a":`
		}
		nested := func(depth int) []byte {
			// The envelope is one level.
			value := strings.Repeat(open, depth-2) + inner + strings.Repeat(brackets[1:], depth-2)
			return []byte(`{"method":"m","params":` + value + `}`)
		}
		if _, err := Parse(nested(MaxDepth)); err != nil {
			t.Errorf("%s: %d levels: %v", brackets, MaxDepth, err)
		}
		_, err := Parse(nested(MaxDepth + 1))
		if err == nil || !strings.HasPrefix(err.Error(), "recursion limit exceeded: more than 128 ") {
			t.Errorf("%s: %d levels: %v", brackets, MaxDepth+1, err)
		}
	}
}

func TestParse_MaxValues(t *testing.T) {
	message := func(values int) []byte {
		// The envelope, the method and the array are three values.
		return []byte(`{"method":"m","params":[` + strings.Repeat("1,", values-4) + `1]}`)
	}
	if _, err := Parse(message(MaxValues)); err != nil {
		t.Errorf("%d values: %v", MaxValues, err)
	}
	_, err := Parse(message(MaxValues + 1))
	if err == nil || !strings.HasPrefix(err.Error(), "more than 262144 JSON values in one message: send it in parts at ") {
		t.Errorf("%d values: %v", MaxValues+1, err)
	}
}

// Objects with many members find duplicates by other means than objects with few.
func TestParse_DuplicateMember_Fails(t *testing.T) {
	object := func(members int) string {
		var text strings.Builder
		for i := range members {
			fmt.Fprintf(&text, `"k%d":{"k0":1,"k1":2},`, i)
		}
		return text.String()
	}
	for _, members := range []int{1, 2, fewNames - 1, fewNames, fewNames + 1, 10_000} {
		text := `{"method":"m","params":{` + object(members)
		if _, err := Parse([]byte(text + `"k":1}}`)); err != nil {
			t.Errorf("%d members: %v", members, err)
		}
		for _, again := range []int{0, members - 1} {
			_, err := Parse(fmt.Appendf(nil, `%s"\u006b%d":1}}`, text, again))
			if want := fmt.Sprintf("duplicate JSON object key `k%d` at", again); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%d members: %v, want %s", members, err, want)
			}
		}
	}
}

// The scanner handles words of eight bytes and blocks of four words. The position
// within them must not matter.
func TestParse_InvalidByteAnywhere_Fails(t *testing.T) {
	refused := map[string]bool{"\x00": true, "\x1f": true, "\n": true, "\xff": true, "\x80": true, "\\": true, "\xc3": true}
	for _, special := range []string{"\x00", "\x1f", "\n", "\xff", "\x80", "\\", "\xc3", "é", "\x7f", `\"`, "!", "#", " ", "[", "]"} {
		for length := range 80 {
			for at := range length + 1 {
				text := strings.Repeat("x", at) + special + strings.Repeat("~", length-at)
				_, err := Parse([]byte(`{"method":"` + text + `"}`))
				if (err != nil) != refused[special] {
					t.Fatalf("%q: %v", text, err)
				}
			}
		}
	}
}
