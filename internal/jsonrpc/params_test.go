package jsonrpc

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// initializeParams has the form of the parameters with which the reference was
// recorded.
type initializeParams struct {
	ClientName      string  `param:"clientName"`
	ResumeSessionID *string `param:"resumeSessionId,optional"`
}

type readParams struct {
	ProcessID string  `param:"processId"`
	AfterSeq  *uint64 `param:"afterSeq"`
	MaxBytes  *uint64 `param:"maxBytes"`
	WaitMS    *uint64 `param:"waitMs"`
}

// everything has a field of each type, and each option.
type everything struct {
	Text     string             `param:"text,optional"`
	Flag     bool               `param:"flag,optional,nullable"`
	Small    int8               `param:"small,optional"`
	Unsigned uint64             `param:"unsigned,optional"`
	List     []string           `param:"list,optional"`
	Map      map[string]*string `param:"map,optional"`
	Inner    struct {
		Numbers []int32 `param:"numbers"`
	} `param:"inner,optional"`
	Nullable *readParams     `param:"nullable"`
	Data     Base64          `param:"data,optional,nullable"`
	Long     Text            `param:"long,optional"`
	Raw      json.RawMessage `param:"raw,optional"`
	Color    color           `param:"color,optional"`
	Ignored  string
}

type color string

func (c *color) UnmarshalText(text []byte) error {
	switch string(text) {
	case "red", "blue":
		*c = color(text)
		return nil
	case "":
		return errors.New("color must not be empty")
	}
	return UnknownVariant(string(text), "red", "blue")
}

func pointer[T any](v T) *T { return &v }

func TestDecodeParams(t *testing.T) {
	for params, want := range map[string]any{
		`{"clientName":"c"}`:                                                        initializeParams{ClientName: "c"},
		`{"clientName":"","resumeSessionId":null}`:                                  initializeParams{},
		`{"resumeSessionId":"s","clientName":"\u00e9"}`:                             initializeParams{ClientName: "é", ResumeSessionID: pointer("s")},
		`{"clientName":"c","extra":{"a":[1]},"ClientName":5,"resume_session_id":5}`: initializeParams{ClientName: "c"},
		`["c"]`:        initializeParams{ClientName: "c"},
		` [ "c",null]`: initializeParams{ClientName: "c"},
		`["c","s"]`:    initializeParams{ClientName: "c", ResumeSessionID: pointer("s")},

		`{"processId":"p","afterSeq":18446744073709551615,"waitMs":0}`: readParams{
			ProcessID: "p", AfterSeq: pointer[uint64](math.MaxUint64), WaitMS: pointer[uint64](0)},
		`["p",1,null,3]`: readParams{ProcessID: "p", AfterSeq: pointer[uint64](1), WaitMS: pointer[uint64](3)},

		`{"nullable":null}`:                                everything{},
		`{"nullable":{"processId":"p"}}`:                   everything{Nullable: &readParams{ProcessID: "p"}},
		`{"nullable":null,"text":"a\n\"\\\/\ud83d\ude00"}`: everything{Text: "a\n\"\\/😀"},
		`{"nullable":null,"flag":true}`:                    everything{Flag: true},
		`{"nullable":null,"flag":null}`:                    everything{},
		`{"nullable":null,"small":-128}`:                   everything{Small: -128},
		`{"nullable":null,"list":[]}`:                      everything{List: []string{}},
		`{"nullable":null,"list":["a",""]}`:                everything{List: []string{"a", ""}},
		`{"nullable":null,"map":{"\u0061":"1","b":null}}`:  everything{Map: map[string]*string{"a": pointer("1"), "b": nil}},
		`{"nullable":null,"inner":[[1,-2]],"Ignored":"x"}`: everything{Inner: struct {
			Numbers []int32 `param:"numbers"`
		}{[]int32{1, -2}}},
		`{"nullable":null,"data":"aGk=","long":"a\tb"}`:          everything{Data: Base64("hi"), Long: Text("a\tb")},
		`{"nullable":null,"data":"\/\/8=","long":"plain"}`:       everything{Data: Base64{0xff, 0xff}, Long: Text("plain")},
		`{"nullable":null,"data":""}`:                            everything{Data: Base64{}},
		`{"nullable":null,"raw": {"a" : [1, "x"]} ,"data":null}`: everything{Raw: json.RawMessage(`{"a" : [1, "x"]}`)},
		`{"nullable":null,"raw":null,"color":"red"}`:             everything{Raw: json.RawMessage(`null`), Color: "red"},
	} {
		got := reflect.New(reflect.TypeOf(want))
		if err := DecodeParams([]byte(params), got.Interface()); err != nil {
			t.Errorf("%s: %v", params, err)
		} else if diff := cmp.Diff(want, got.Elem().Interface()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", params, diff)
		}
	}
}

// place is an embedded struct that several methods share.
type place struct {
	Second position `param:"second"`
}

// position rejects one value with an error code of its own.
type position string

func (p *position) UnmarshalText(text []byte) error {
	if string(text) == "nowhere" {
		return Errorf(CodeInvalidRequest, "no such position")
	}
	*p = position(text)
	return nil
}

func TestDecodeParams_EmbeddedStruct(t *testing.T) {
	type params struct {
		First string `param:"first"`
		place
		Third string `param:"third"`
	}
	for _, text := range []string{`["a","b","c"]`, `{"third":"c","second":"b","first":"a"}`} {
		var got params
		if err := DecodeParams([]byte(text), &got); err != nil || got != (params{"a", place{"b"}, "c"}) {
			t.Errorf("%s is decoded as %+v, %v", text, got, err)
		}
	}
	err := DecodeParams([]byte(`["a","nowhere","c"]`), &params{})
	want := &Error{Code: CodeInvalidRequest, Message: "no such position", Data: InvalidField{Reason: "INVALID_FIELD", Field: "second"}}
	if diff := cmp.Diff(want, err); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDecodeParams_UnpositionedField_OnlyByName(t *testing.T) {
	type params struct {
		First  string `param:"first"`
		Named  string `param:"named,optional,named"`
		Second string `param:"second,optional"`
	}
	for text, want := range map[string]params{
		`["a","b"]`:                 {First: "a", Second: "b"},
		`["a"]`:                     {First: "a"},
		`{"first":"a","named":"n"}`: {First: "a", Named: "n"},
	} {
		var got params
		if err := DecodeParams([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s is decoded as %+v, %v; want %+v", text, got, err, want)
		}
	}
	err := DecodeParams([]byte(`["a","b","c"]`), &params{})
	if want := "invalid length 3, expected struct Params with 2 elements"; err == nil || err.Message != want {
		t.Errorf("too many elements: got %v, want %s", err, want)
	}
}

func TestDecodeParams_StrictStruct_UnknownMember_Fails(t *testing.T) {
	type inner struct {
		_    struct{} `param:",strict"`
		Name string   `param:"name,optional"`
		Size *int     `param:"size"`
	}
	type params struct {
		Inner inner `param:"inner"`
	}
	var got params
	if err := DecodeParams([]byte(`{"inner":{"name":"a","size":null},"other":1}`), &got); err != nil || got.Inner.Name != "a" {
		t.Errorf("got %+v, %v", got, err)
	}
	for text, want := range map[string]refusal{
		`{"inner":{"name":"a","Name":"b"}}`: {field: "inner.Name", message: "unknown field `Name`, expected one of `name`, `size`"},
		`{"inner":["a"]}`:                   {field: "inner", message: "invalid type: sequence, expected struct Inner"},
		`{"inner":[]}`:                      {field: "inner", message: "invalid type: sequence, expected struct Inner"},
	} {
		err := DecodeParams([]byte(text), &params{})
		if err == nil || err.Message != want.message || err.Data != (InvalidField{Field: want.field, Reason: "INVALID_FIELD"}) {
			t.Errorf("%s: got %+v, want %+v", text, err, want)
		}
	}
}

func TestDecodeParams_AbsentMembers_KeepValues(t *testing.T) {
	got := everything{Text: "before", Flag: true, Data: Base64("before")}
	if err := DecodeParams([]byte(`{"nullable":null,"flag":null}`), &got); err != nil {
		t.Fatal(err)
	}
	if got.Text != "before" || !got.Flag || string(got.Data) != "before" {
		t.Errorf("after absent and null members: %+v", got)
	}
}

// refusal is malformed parameters, and the field and message of the error.
type refusal struct{ params, field, message string }

// Most messages are recordings of the reference.
func TestDecodeParams_Errors(t *testing.T) {
	for into, refusals := range map[any][]refusal{
		&initializeParams{}: {
			{`null`, "", "invalid type: null, expected struct InitializeParams"},
			{`{}`, "clientName", "missing field `clientName`"},
			{`{"client_name":"c"}`, "clientName", "missing field `clientName`"},
			{`[]`, "", "invalid length 0, expected struct InitializeParams with 2 elements"},
			{`["a",null,1]`, "", "invalid length 3, expected struct InitializeParams with 2 elements"},
			{`"x"`, "", `invalid type: string "x", expected struct InitializeParams`},
			{`5`, "", "invalid type: integer `5`, expected struct InitializeParams"},
			{`{"clientName":5}`, "clientName", "invalid type: integer `5`, expected a string"},
			{`{"clientName":5.0}`, "clientName", "invalid type: floating point `5.0`, expected a string"},
			{`{"clientName":null}`, "clientName", "invalid type: null, expected a string"},
			{`{"clientName":true}`, "clientName", "invalid type: boolean `true`, expected a string"},
			{`{"clientName":["a"]}`, "clientName", "invalid type: sequence, expected a string"},
			{`{"clientName":{}}`, "clientName", "invalid type: map, expected a string"},
			{`{"clientName":"c","resumeSessionId":7}`, "resumeSessionId", "invalid type: integer `7`, expected a string"},
		},
		&readParams{}: {
			{`["p"]`, "", "invalid length 1, expected struct ReadParams with 4 elements"},
			{`{"processId":"p","afterSeq":-1}`, "afterSeq", "invalid value: integer `-1`, expected u64"},
			{`{"processId":"p","afterSeq":"x"}`, "afterSeq", `invalid type: string "x", expected u64`},
			{`{"processId":"p","waitMs":1.5}`, "waitMs", "invalid type: floating point `1.5`, expected u64"},
			{`{"processId":"p","waitMs":1e3}`, "waitMs", "invalid type: floating point `1e3`, expected u64"},
			{`{"processId":"p","waitMs":18446744073709551616}`, "waitMs", "invalid value: integer `18446744073709551616`, expected u64"},
		},
		&everything{}: {
			{`{"nullable":{"processId":5}}`, "nullable.processId", "invalid type: integer `5`, expected a string"},
			{`{"nullable":{}}`, "nullable.processId", "missing field `processId`"},
			{`{"text":null}`, "text", "invalid type: null, expected a string"},
			{`{"flag":"x"}`, "flag", `invalid type: string "x", expected a boolean`},
			{`{"small":128}`, "small", "invalid value: integer `128`, expected i8"},
			{`{"list":null}`, "list", "invalid type: null, expected a sequence"},
			{`{"list":{"a":"b"}}`, "list", "invalid type: map, expected a sequence"},
			{`{"list":["a",1,2]}`, "list[1]", "invalid type: integer `1`, expected a string"},
			{`{"map":null}`, "map", "invalid type: null, expected a map"},
			{`{"map":{"a":"1","b":2,"c":3}}`, "map.b", "invalid type: integer `2`, expected a string"},
			{`{"inner":{}}`, "inner.numbers", "missing field `numbers`"},
			{`{"inner":{"numbers":[1,"a"]}}`, "inner.numbers[1]", `invalid type: string "a", expected i32`},
			{`{"inner":5}`, "inner", "invalid type: integer `5`, expected struct"},
			{`{"data":5}`, "data", "invalid type: integer `5`, expected a string"},
			{`{"data":"***"}`, "data", "Invalid symbol 42, offset 0."},
			{`{"data":"aGk=\n"}`, "data", "Invalid symbol 10, offset 4."},
			{`{"long":null}`, "long", "invalid type: null, expected a string"},
			{`{"color":"green"}`, "color", "unknown variant `green`, expected `red` or `blue`"},
			{`{"color":""}`, "color", "color must not be empty"},
			{`{"color":2}`, "color", "invalid type: integer `2`, expected a string"},
		},
	} {
		for _, r := range refusals {
			want := &Error{Code: CodeInvalidParams, Message: r.message, Data: InvalidField{Reason: "INVALID_FIELD", Field: r.field}}
			got := DecodeParams([]byte(r.params), into)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", r.params, diff)
			}
		}
	}
}

func TestDecodeParams_Absent_IsNull(t *testing.T) {
	err := DecodeParams(nil, new(initializeParams))
	if err == nil || err.Message != "invalid type: null, expected struct InitializeParams" {
		t.Errorf("absent parameters: %v", err)
	}
}

// The parameters normally come from Parse, but DecodeParams does not depend on
// that.
func TestDecodeParams_InvalidJSON_Fails(t *testing.T) {
	for _, params := range []string{``, ` `, `{`, `{"clientName":"c"`, `{"clientName":"c"} x`, `["c",`, `{"clientName":"\ud800"}`,
		`{"clientName":"c","clientName":"c"}`, `{"clientName":}`, `nul`} {
		if err := DecodeParams([]byte(params), new(initializeParams)); err == nil {
			t.Errorf("%q was accepted", params)
		}
	}
}

func TestDecodeParams_ErrorsAreShort(t *testing.T) {
	for _, params := range []string{
		`"` + strings.Repeat("x", 1<<20) + `"`,
		`{"clientName":` + strings.Repeat("7", 1<<20) + `}`,
	} {
		if err := DecodeParams([]byte(params), new(initializeParams)); err == nil || len(err.Message) > 200 {
			t.Errorf("the message has %d bytes: %.300s", len(err.Message), err.Message)
		}
	}
}

func TestDecodeParams_CopiesStrings(t *testing.T) {
	params := []byte(`{"clientName":"name","resumeSessionId":"session"}`)
	var got initializeParams
	if err := DecodeParams(params, &got); err != nil {
		t.Fatal(err)
	}
	clear(params)
	if got.ClientName != "name" || *got.ResumeSessionID != "session" {
		t.Errorf("strings share the memory of the message: %+v", got)
	}
}

func TestDecodeParams_UnsupportedType_Panics(t *testing.T) {
	for name, into := range map[string]any{
		"no struct": new(string),
		"channel": new(struct {
			A chan int `param:"a"`
		}),
		"integer keys": new(struct {
			A map[int]int `param:"a"`
		}),
		"unknown option": new(struct {
			A int `param:"a,omitempty"`
		}),
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			_ = DecodeParams([]byte(`{}`), into)
		}()
	}
}

func TestUnknownVariant(t *testing.T) {
	for want, expected := range map[string][]string{
		"unknown variant `some`, expected `interrupt`":                  {"interrupt"},
		"unknown variant `some`, expected `follow` or `stop`":           {"follow", "stop"},
		"unknown variant `some`, expected one of `core`, `all`, `none`": {"core", "all", "none"},
	} {
		if got := UnknownVariant("some", expected...).Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
