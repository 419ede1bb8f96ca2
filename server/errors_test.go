package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/httpclient"
	"github.com/execwire/execwire/internal/ports"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
)

// infoOf returns the ErrorInfo of an error, and fails the test if there is
// none or its reason is not one of the contract.
func infoOf(t *testing.T, err error) *errdetails.ErrorInfo {
	t.Helper()
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			if info.GetDomain() != errorinfo.Domain {
				t.Errorf("domain = %q", info.GetDomain())
			}
			if errorinfo.Parse(info.GetReason()) == 0 {
				t.Errorf("reason %q is not in the contract", info.GetReason())
			}
			return info
		}
	}
	t.Fatalf("%v carries no ErrorInfo", err)
	return nil
}

func TestToStatus_ProcessHandleAndSessionErrors(t *testing.T) {
	s := New(Config{})
	for kind := process.Kind(1); kind < process.KindEnd; kind++ {
		if _, ok := processErrors[kind]; !ok {
			t.Errorf("process kind %v has no translation", kind)
			continue
		}
		err := s.toStatus(t.Context(), fmt.Errorf("wrapped: %w", &process.Error{Kind: kind, Err: errors.New("cause")}))
		if code := status.Code(err); code != processErrors[kind].code {
			t.Errorf("%v: code %v", kind, code)
		}
		infoOf(t, err)
	}
	for kind := session.Kind(1); kind < session.KindEnd; kind++ {
		if _, ok := sessionErrors[kind]; !ok {
			t.Errorf("session kind %v has no translation", kind)
			continue
		}
		err := s.toStatus(t.Context(), fmt.Errorf("wrapped: %w", &session.Error{Kind: kind, Subject: "x"}))
		if code := status.Code(err); code != sessionErrors[kind].code {
			t.Errorf("%v: code %v", kind, code)
		}
		infoOf(t, err)
	}
}

func TestToStatus_FileErrors(t *testing.T) {
	s := New(Config{})
	for kind := fsops.Kind(1); kind < fsops.KindEnd; kind++ {
		want, ok := fileErrors[kind]
		if !ok {
			t.Errorf("kind %v of files has no translation", kind)
			continue
		}
		err := s.toStatus(t.Context(), fmt.Errorf("wrapped: %w", &fsops.Error{Kind: kind, Path: "/bad\xff", Err: errors.New("cause")}))
		if status.Code(err) != want.code || infoOf(t, err).GetReason() != errorinfo.Name(want.reason) {
			t.Errorf("%v becomes %v", kind, err)
		}
	}
}

func TestToStatus_HTTPErrors(t *testing.T) {
	s := New(Config{})
	for kind := httpclient.Kind(1); kind < httpclient.KindEnd; kind++ {
		want, ok := httpErrors[kind]
		if !ok {
			t.Errorf("kind %v of HTTP has no translation", kind)
			continue
		}
		err := s.toStatus(t.Context(), fmt.Errorf("wrapped: %w", &httpclient.Error{Kind: kind, Field: "url", URL: "http://h/\xff", Err: errors.New("cause \xff")}))
		if status.Code(err) != want.code || infoOf(t, err).GetReason() != errorinfo.Name(want.reason) {
			t.Errorf("%v becomes %v", kind, err)
		}
	}
}

func TestToStatus_PortErrors(t *testing.T) {
	s := New(Config{})
	for kind := ports.Kind(1); kind < ports.KindEnd; kind++ {
		want, ok := portErrors[kind]
		if !ok {
			t.Errorf("kind %v of ports has no translation", kind)
			continue
		}
		err := s.toStatus(t.Context(), fmt.Errorf("wrapped: %w", &ports.Error{Kind: kind, Target: "h\xff:1", Err: errors.New("cause \xff")}))
		if status.Code(err) != want.code || infoOf(t, err).GetReason() != errorinfo.Name(want.reason) {
			t.Errorf("%v becomes %v", kind, err)
		}
	}
}

func TestToStatus_OtherErrors(t *testing.T) {
	s := New(Config{Limits: Limits{ServerLimits: &execwirev1.ServerLimits{ReadersPerProcess: 3}}})
	tests := []struct {
		err    error
		code   codes.Code
		reason string
	}{
		{eventlog.ErrReplaced, codes.Aborted, "PROCESS_TAKEN_OVER"},
		{eventlog.ErrFutureSeq, codes.OutOfRange, "SEQ_NOT_REACHED"},
		{eventlog.ErrTooManyReaders, codes.ResourceExhausted, "TOO_MANY_READERS"},
		{context.Canceled, codes.Canceled, "CALL_CANCELLED"},
		{context.DeadlineExceeded, codes.DeadlineExceeded, "DEADLINE_EXCEEDED"},
		{status.Error(codes.InvalidArgument, "grpc: broken"), codes.InvalidArgument, "BROKEN_CALL"},
		{io.ErrUnexpectedEOF, codes.Internal, "INTERNAL"},
		{notImplemented("x"), codes.Unimplemented, "NOT_IMPLEMENTED"},
	}
	for _, tt := range tests {
		err := s.toStatus(t.Context(), tt.err)
		if status.Code(err) != tt.code || infoOf(t, err).GetReason() != tt.reason {
			t.Errorf("%v becomes %v with %v, want %v with %s", tt.err, status.Code(err), infoOf(t, err).GetReason(), tt.code, tt.reason)
		}
	}
	if s.toStatus(t.Context(), nil) != nil {
		t.Error("nil becomes an error")
	}
}

func TestToStatus_UnexpectedError_HidesText(t *testing.T) {
	err := New(Config{}).toStatus(t.Context(), errors.New("open /etc/secret: no"))
	if text := status.Convert(err).Message(); text != "the server failed; its log says more" {
		t.Errorf("the client receives %q", text)
	}
}

func TestFromAuth_AllKinds(t *testing.T) {
	distinguished := []auth.Kind{auth.KindOnBehalfOfRefused, auth.KindPeerRefused, auth.KindTooManyAttempts, auth.KindTooManyConnections}
	for kind := auth.Kind(1); kind < auth.KindEnd; kind++ {
		want, ok := authErrors[kind]
		if ok != slices.Contains(distinguished, kind) {
			t.Errorf("%v: it has a reason of its own: %v", kind, ok)
		}
		if !ok {
			want = translation{codes.Unauthenticated, execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED}
		}
		err := fromAuth(fmt.Errorf("wrapped: %w", &auth.Error{Kind: kind, Subject: "x", Err: errors.New("the secret cause"), ForCaller: "what to do"}))
		if code := status.Code(err); code != want.code || infoOf(t, err).GetReason() != errorinfo.Name(want.reason) {
			t.Errorf("%v becomes %v, want %v", kind, err, want)
		}
		if strings.Contains(err.Error(), "cause") {
			t.Errorf("%v: the error has the cause: %v", kind, err)
		}
		if has := strings.Contains(err.Error(), "what to do"); has != (kind == auth.KindPeerRefused || kind == auth.KindTooManyConnections) {
			t.Errorf("%v: the error for the caller is %v", kind, err)
		}
	}
	if err := fromAuth(errors.New("anything")); status.Code(err) != codes.Unauthenticated {
		t.Errorf("an unexpected error becomes %v", err)
	}
}

// A caller without a principal has no permission.
func TestMayCall_WithoutPrincipal_Fails(t *testing.T) {
	s := New(Config{Authenticate: func(context.Context) (auth.Caller, error) { return auth.Caller{May: auth.Everything}, nil }})
	if _, err := s.authorize(t.Context()); status.Code(err) != codes.Unauthenticated {
		t.Errorf("authorize = %v", err)
	}
}

func TestConversions_WatchChangesAndLosses_AreComplete(t *testing.T) {
	for kind := fsops.Created; kind <= fsops.Removed; kind++ {
		if changeKinds[kind] == 0 {
			t.Errorf("change %d is not translated", kind)
		}
	}
	for reason := fsops.LostRemoved; reason <= fsops.LostNotAllowed; reason++ {
		if lostReasons[reason] == 0 {
			t.Errorf("loss %d is not translated", reason)
		}
	}
}

func TestConversions_AreComplete(t *testing.T) {
	for name, counts := range map[string][2]int{
		"causes":    {len(valuesOf(exitCauses)), len(execwirev1.ExitCause_name) - 1},
		"states":    {len(valuesOf(processStates)), len(execwirev1.ProcessState_name) - 1},
		"methods":   {len(valuesOf(killMethods)), len(execwirev1.KillMethod_name) - 1},
		"resources": {len(valuesOf(resources)), len(execwirev1.LimitedResource_name) - 1},
		"targets":   {len(signalTargets), len(execwirev1.SignalTarget_name)},
		"streams":   {len(outputStreams), len(execwirev1.OutputStream_name)},
		"files":     {len(fileTypes), len(execwirev1.FileType_name)},
	} {
		if counts[0] != counts[1] {
			t.Errorf("%d %s are translated, the contract has %d", counts[0], name, counts[1])
		}
	}
}
