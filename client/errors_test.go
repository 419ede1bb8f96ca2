package client

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
)

func TestFromRPC_RestoresDetails(t *testing.T) {
	st, err := status.New(codes.InvalidArgument, "failed to start").WithDetails(
		&errdetails.ErrorInfo{
			Domain: errorinfo.Domain, Reason: "INVALID_FIELD", Metadata: map[string]string{"limit_bytes": "7"},
		},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: "command.direct.argv", Description: "is empty: name a program"},
		}},
		&errdetails.ResourceInfo{ResourceType: "process", ResourceName: "p"},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)},
	)
	if err != nil {
		t.Fatal(err)
	}
	var got *Error
	if !errors.As(FromRPC(st.Err()), &got) {
		t.Fatalf("got %v, want an *Error", FromRPC(st.Err()))
	}
	if got.Code != codes.InvalidArgument || got.Reason != execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD ||
		got.Metadata["limit_bytes"] != "7" || got.ResourceName != "p" || got.RetryAfter != 3*time.Second {
		t.Errorf("got %+v", got)
	}
	if want := "failed to start (command.direct.argv: is empty: name a program)"; got.Error() != want {
		t.Errorf("got message %q, want %q", got.Error(), want)
	}
	if status.Code(got) != codes.InvalidArgument {
		t.Errorf("the restored error has lost its status: %v", status.Code(got))
	}
}

// TestReason_EveryReason fails if a reason cannot be decoded from the name in the
// contract.
func TestReason_EveryReason(t *testing.T) {
	for number := range execwirev1.ErrorReason_name {
		reason := execwirev1.ErrorReason(number)
		err := serverError(codes.Internal, reason)
		if Reason(err) != reason || Reason(fmt.Errorf("wrapped: %w", FromRPC(err))) != reason {
			t.Errorf("%v does not survive", reason)
		}
	}
}

func TestReason_ForeignError_IsUnspecified(t *testing.T) {
	foreign, err := status.New(codes.NotFound, "x").WithDetails(
		&errdetails.ErrorInfo{Domain: "example.com", Reason: "PROCESS_NOT_FOUND"})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{nil, io.EOF, status.Error(codes.NotFound, "x"), foreign.Err()} {
		if Reason(err) != execwirev1.ErrorReason_ERROR_REASON_UNSPECIFIED {
			t.Errorf("%v has reason %v", err, Reason(err))
		}
	}
}

func TestFromRPC_NotAStatus_IsUnchanged(t *testing.T) {
	typed := FromRPC(status.Error(codes.NotFound, "x"))
	for _, err := range []error{nil, io.EOF, typed} {
		if got := FromRPC(err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
}

func TestErrors_NameSubject(t *testing.T) {
	for _, test := range []struct {
		err  error
		want []string
	}{
		{&LostError{ProcessID: "p", Err: io.EOF}, []string{"process p", "may or may not have run", "EOF"}},
		{&LostError{ProcessID: "p", Started: true, Err: io.EOF}, []string{"was running"}},
		{&LostError{ProcessID: "p", Started: true, Exit: &execwirev1.ExitRecord{}, Err: io.EOF}, []string{"had exited"}},
		{&OutputError{Stream: execwirev1.OutputStream_OUTPUT_STREAM_STDERR, Err: io.ErrShortWrite}, []string{"stderr", "short write"}},
		{&InputError{Err: io.ErrUnexpectedEOF}, []string{"stdin", "unexpected EOF"}},
		{&DialError{URL: "grpc://x:1", Err: io.EOF}, []string{"grpc://x:1", "EOF"}},
		{protocolErrorf("seq %d", 3), []string{"seq 3"}},
	} {
		for _, want := range test.want {
			if !strings.Contains(test.err.Error(), want) {
				t.Errorf("%q does not say %q", test.err, want)
			}
		}
	}
}

func TestError_DoesNotRepeatFields(t *testing.T) {
	const problem = "is empty: give a name"
	for want, message := range map[string]string{
		"process_id " + problem:            "process_id " + problem,
		"it " + problem + " (process_id)":  "it " + problem,
		"no (process_id: " + problem + ")": "no",
	} {
		err := &Error{Message: message, Fields: []FieldViolation{{Field: "process_id", Description: problem}}}
		if got := err.Error(); got != want {
			t.Errorf("%q is told as %q, want %q", message, got, want)
		}
	}
}
