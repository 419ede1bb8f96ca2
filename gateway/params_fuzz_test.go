package gateway

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/execwire/execwire/gateway/files"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// maxRefusalBytes limits the error of rejected parameters, with its
// data: it repeats only a part of them.
const maxRefusalBytes = 2 << 10

// refusalCodes are the codes with which parameters may be rejected.
var refusalCodes = []int{jsonrpc.CodeInvalidRequest, jsonrpc.CodeMethodNotFound, jsonrpc.CodeInvalidParams, jsonrpc.CodeInternal}

// decodeInitialize decodes the parameters of initialize as the connection does.
func decodeInitialize(params []byte) (any, *jsonrpc.Error) {
	into := new(initializeParams)
	return into, jsonrpc.DecodeParams(params, into)
}

// allDecoders returns the decoders of all methods.
func allDecoders() map[string]func([]byte) (any, *jsonrpc.Error) {
	all := map[string]func([]byte) (any, *jsonrpc.Error){"initialize": decodeInitialize}
	for name, m := range methods {
		all[name] = func(params []byte) (any, *jsonrpc.Error) { return m.decode(params, files.New(nil, nil, nil, nil)) }
	}
	return all
}

// FuzzMethodParams decodes parameters by every method. What one accepts means the
// same in any JSON encoding, with and without unknown members, and
// after the memory of the message is overwritten.
func FuzzMethodParams(f *testing.F) {
	decoders := allDecoders()
	names := slices.Sorted(maps.Keys(decoders))
	for _, shape := range shapes {
		f.Add([]byte(`{"processId":"p","argv":["a"],"env":{},"tty":false,"cwd":"/","path":"/p",` + withLevel(shape.members) + `}`))
	}
	for _, seed := range paramSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, params []byte) {
		m, err := jsonrpc.Parse(slices.Concat([]byte(`{"id":1,"method":"m","params":`), params, []byte("}")))
		if err != nil || m.Params == nil {
			return
		}
		for _, name := range names {
			checkParams(t, name, decoders[name], m.Params)
		}
	})
}

func checkParams(t *testing.T, method string, decode func([]byte) (any, *jsonrpc.Error), params []byte) {
	t.Helper()
	message := bytes.Clone(params)
	got, refused := decode(message)
	clear(message)
	if refused != nil {
		checkRefusal(t, method, params, refused)
	}
	rewritten, more := rewrite(t, params)
	for _, form := range [][]byte{params, rewritten, more} {
		again, err := decode(form)
		if (err == nil) != (refused == nil) {
			t.Fatalf("%s: %s returns %v, and as %s %v", method, params, refused, form, err)
		}
		if err == nil && !reflect.DeepEqual(got, again) {
			t.Fatalf("%s: %s is decoded as %+v, and as %s %+v", method, params, got, form, again)
		}
	}
}

func checkRefusal(t *testing.T, method string, params []byte, refused *jsonrpc.Error) {
	t.Helper()
	encoded := jsonrpc.AppendError(nil, jsonrpc.NumberID(1), refused)
	switch {
	case !slices.Contains(refusalCodes, refused.Code):
		t.Errorf("%s: %s fails with the code %d", method, params, refused.Code)
	case len(encoded) > maxRefusalBytes:
		t.Errorf("%s: %.300s fails with %d bytes: %.300s", method, params, len(encoded), encoded)
	case !utf8.ValidString(refused.Message), refused.Message == "":
		t.Errorf("%s: %s fails with %q", method, params, refused.Message)
	case !json.Valid(encoded):
		t.Errorf("%s: %s fails with invalid JSON: %s", method, params, encoded)
	}
}

// rewrite returns parameters as encoding/json encodes them, and, if they are an
// object, the same with another member.
func rewrite(t *testing.T, params []byte) (rewritten, more []byte) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(params))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%s was parsed, and encoding/json returned %v", params, err)
	}
	rewritten = []byte(toJSON(value))
	if members, ok := value.(map[string]any); ok {
		members["a member that nobody knows"] = []any{map[string]any{"\x00": nil}}
		return rewritten, []byte(toJSON(members))
	}
	return rewritten, rewritten
}

// paramSeeds has valid parameters of every method.
var paramSeeds = []string{
	`null`, `{}`, `[]`, `[null]`, `"x"`, `-0`, `[[],{}]`,
	`{"clientName":"c","resumeSessionId":null}`, `["c","s"]`,
	`{"processId":"p","argv":["a"],"cwd":"/","env":{"A":"1"},"tty":true,"pipeStdin":true,"arg0":"x",` +
		`"envPolicy":{"inherit":"core","ignoreDefaultExcludes":true,"exclude":["*X*"],"set":{"B":"2"},"includeOnly":[]},` +
		`"sandbox":{"permissions":{"type":"disabled"}},"enforceManagedNetwork":false,"managedNetwork":null}`,
	`["p",["a"],"file:///tmp",{},false]`, `{"watchId":1,"processId":"~p"}`, `["w",null]`,
	`{"processId":"p","argv":["a"],"cwd":"/","env":{},"tty":false,"outputBytesCap":16384,"arg0":null}`,
	`["p",["a"],"/tmp",{},true,18446744073709551615,"x"]`,
	`{"processId":"p","argv":[],"cwd":"/","env":{},"tty":false}`,
	`{"processId":"p","argv":["a\u0000"],"cwd":"file:///%00","env":{"":""},"tty":false}`,
	`{"processId":"\ud83d\ude00~","afterSeq":18446744073709551615,"maxBytes":0,"waitMs":1e3}`,
	`{"processId":"p","chunk":"aGk=","writeId":""}`, `["p","\u0061Gk=","w"]`, `{"processId":"p","chunk":"***"}`,
	`{"processId":"p","signal":"interrupt"}`, `{"processId":"p","signal":"KILL"}`,
	`{"processId":"p","signal":"SIGKILL","target":"process","mode":"graceful","timeoutMs":5}`, `{"processId":"p","signal":9,"mode":"force"}`,
	`{"processId":"p","rows":24,"cols":80}`, `{"pageSize":1,"pageToken":"p"}`,
	`{"processId":"p","until":{"pattern":"x","stream":"pty","afterSeq":1},"timeoutMs":0}`, `["p",{"port":80},null]`, `{"processId":"p","until":{"idleMs":1}}`,
	`{"path":"/a/../b","dataBase64":"","recursive":null,"force":false,"followSymlinks":true,"sandbox":null,"sandboxPolicy":null}`,
	`{"path":"file:///%ff","dataBase64":"/+8=","sandbox":{"permissions":{"type":"managed","file_system":{"type":"unrestricted"},"network":"enabled"}}}`,
	`{"path":"file://host/x?q#f","sandboxPolicy":{"type":"dangerFullAccess"}}`,
	`{"sourcePath":"/a","destinationPath":"file:///b","recursive":true}`, `["/a","/b",true,null]`,
}
