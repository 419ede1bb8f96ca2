package execserver

import (
	"encoding/json"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// TestErrorData_UnknownMembers has servers send data of errors that this client does not know.
func TestErrorData_UnknownMembers(t *testing.T) {
	for data, want := range map[string]codes.Code{
		`{}`:                                    codes.Internal,
		`{"reason":"PATH_NOT_FOUND","newer":1}`: codes.NotFound,
		`{"reason":"NEWER"}`:                    codes.Internal,
	} {
		err := statusOf("fs/readFile", &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: "it failed", Data: json.RawMessage(data)})
		if status.Code(err) != want {
			t.Errorf("%s is %v, want %v", data, err, want)
		}
	}
	err := statusOf("fs/readFile", &jsonrpc.Error{Code: jsonrpc.CodeInternal, Data: json.RawMessage(`{"reason":"NO_SPACE"}`)})
	if errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_NO_SPACE {
		t.Errorf("it is %v", err)
	}
}
