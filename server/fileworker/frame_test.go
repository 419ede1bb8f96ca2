package fileworker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// content returns the content of a frame.
func content(t testing.TB, frame []byte) []byte {
	t.Helper()
	content, err := readFrame(bufio.NewReader(bytes.NewReader(frame)), len(frame))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestReadFrame_Limit(t *testing.T) {
	frame, err := encodeRequest(t.Context(), "/service/method", wrapperspb.Bytes(make([]byte, 1<<20)))
	if err != nil {
		t.Fatal(err)
	}
	size := len(frame) - frameHeader
	for limit, want := range map[int]error{size: nil, size - 1: errTooLarge} {
		if got, err := readFrame(bufio.NewReader(bytes.NewReader(frame)), limit); !errors.Is(err, want) || err == nil && len(got) != size {
			t.Errorf("with limit %d: %d bytes, %v", limit, len(got), err)
		}
	}
	for _, end := range []int{0, 1, frameHeader, len(frame) - 1} {
		if _, err := readFrame(bufio.NewReader(bytes.NewReader(frame[:end])), size); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("with %d bytes: %v", end, err)
		}
	}
}

func TestRequest_RoundTrip(t *testing.T) {
	for name, md := range map[string]metadata.MD{
		"no metadata": {},
		"metadata":    {"a": {"1", ""}, "b": {"2"}},
	} {
		frame, err := encodeRequest(metadata.NewOutgoingContext(t.Context(), md), "/service/method", wrapperspb.String("x"))
		if err != nil {
			t.Fatal(err)
		}
		method, got, message, err := decodeRequest(content(t, frame))
		var decoded wrapperspb.StringValue
		if err := errors.Join(err, proto.Unmarshal(message, &decoded)); err != nil || method != "/service/method" || decoded.GetValue() != "x" ||
			!maps.EqualFunc(got, md, slices.Equal) {
			t.Errorf("%s: %s, %v, %q, %v", name, method, got, message, err)
		}
	}
}

func TestResponse_RoundTrip(t *testing.T) {
	for name, test := range map[string]struct {
		message any
		err     error
		want    codes.Code
	}{
		"message":            {wrapperspb.String("x"), nil, codes.OK},
		"status":             {nil, status.Error(codes.NotFound, "x"), codes.NotFound},
		"other error":        {nil, errors.New("x"), codes.Unknown},
		"end of the context": {nil, context.DeadlineExceeded, codes.DeadlineExceeded},
		"message not UTF-8":  {wrapperspb.String("\xff"), nil, codes.Unknown},
		"error not UTF-8":    {nil, status.Error(codes.NotFound, "\xff"), codes.NotFound},
	} {
		var decoded wrapperspb.StringValue
		malformed, err := decodeResponse(content(t, encodeResponse(test.message, test.err)), &decoded)
		if malformed || status.Code(err) != test.want || err == nil && decoded.GetValue() != "x" {
			t.Errorf("%s: %v, %v, %v", name, malformed, err, &decoded)
		}
	}
}

func TestDecodeResponse_Malformed(t *testing.T) {
	for name, content := range map[string]string{
		"empty":               "",
		"unknown kind":        "\x02",
		"no message":          "\x00\xff",
		"no status":           "\x01\xff",
		"status without code": "\x01",
	} {
		if malformed, err := decodeResponse([]byte(content), new(wrapperspb.StringValue)); !malformed || status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v, %v", name, malformed, err)
		}
	}
}

func FuzzDecodeRequest(f *testing.F) {
	frame, err := encodeRequest(metadata.AppendToOutgoingContext(f.Context(), "a", "1", "a", "2"), "/service/method", wrapperspb.String("x"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content(f, frame))
	f.Add([]byte("\x03\x01"))
	f.Add([]byte("\x00"))
	f.Fuzz(func(t *testing.T, content []byte) {
		if _, _, message, err := decodeRequest(content); err == nil && !bytes.HasSuffix(content, message) {
			t.Errorf("%q in %q", message, content)
		}
	})
}
