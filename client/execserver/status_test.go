package execserver

import (
	"encoding/json"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// TestNoErrorIsASuccess has a server say of an error that it is none, or say more of it
// than is known here.
func TestNoErrorIsASuccess(t *testing.T) {
	for data, want := range map[string]codes.Code{
		`{"status":{}}`: codes.Internal,
		`{"status":{"code":0,"message":"fine"},"reason":"PATH_NOT_FOUND"}`:                              codes.NotFound,
		`{"status":{"code":5,"message":"no","newer":1}}`:                                                codes.NotFound,
		`{"status":{"code":5,"details":[{"@type":"type.googleapis.com/x.Newer"}]},"reason":"INTERNAL"}`: codes.Internal,
	} {
		err := (&Conn{}).statusOf("fs/readFile", &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: "it failed", Data: json.RawMessage(data)})
		if status.Code(err) != want {
			t.Errorf("%s is %v, want %v", data, err, want)
		}
	}
	err := (&Conn{}).statusOf("fs/readFile", &jsonrpc.Error{Code: jsonrpc.CodeInternal, Data: json.RawMessage(`{"reason":"NO_SPACE"}`)})
	if reasonOf(err) != execwirev1.ErrorReason_ERROR_REASON_NO_SPACE {
		t.Errorf("it is %v", err)
	}
}
