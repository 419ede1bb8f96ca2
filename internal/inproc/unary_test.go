package inproc_test

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func answering(err error) func(*env) *stub {
	return func(*env) *stub {
		return &stub{unary: func(_ context.Context, in *text) (*text, error) {
			if err != nil {
				return nil, err
			}
			return txt("re: " + in.GetValue()), nil
		}}
	}
}

func asking(e *env) { e.invoke(e.ctx, unaryMethod, txt("hello")) }

var unaryScenarios = []scenario{
	{name: "unary/answer", stub: answering(nil), client: asking, wantClient: []string{`ok "re: hello"`}},
	{
		name: "unary/status", stub: answering(status.Error(codes.NotFound, "no such process")), client: asking,
		wantClient: []string{`NotFound "no such process" ""`},
	},
	{
		name: "unary/wrapped status", stub: answering(fmt.Errorf("start: %w", status.Error(codes.NotFound, "gone"))), client: asking,
		wantClient: []string{`NotFound "start: rpc error: code = NotFound desc = gone" ""`},
	},
	{
		name: "unary/plain error", stub: answering(errors.New("broken")), client: asking,
		wantClient: []string{`Unknown "broken" ""`},
	},
	{
		name: "unary/context error", stub: answering(fmt.Errorf("waiting: %w", context.DeadlineExceeded)), client: asking,
		wantClient: []string{`DeadlineExceeded "waiting: context deadline exceeded" ""`},
	},
	{
		name: "unary/end of file as error", stub: answering(io.EOF), client: asking,
		wantClient: []string{`Unknown "EOF" ""`},
	},
	{
		name: "unary/status with details", stub: answering(detailed()),
		client: func(e *env) {
			err := e.cc.Invoke(e.ctx, unaryMethod, txt(""), new(text))
			for _, d := range status.Convert(err).Details() {
				info, _ := d.(*errdetails.ErrorInfo)
				e.client.note("%s: %s", info.GetDomain(), info.GetReason())
			}
		},
		wantClient: []string{"execwire.v1: PROCESS_NOT_FOUND"},
	},
	{
		name: "unary/no such service", stub: answering(nil),
		client:     func(e *env) { e.invoke(e.ctx, "/test.Other/Unary", txt("")) },
		wantClient: []string{`Unimplemented "unknown service test.Other" ""`},
	},
	{
		name: "unary/no such method", stub: answering(nil),
		client:     func(e *env) { e.invoke(e.ctx, "/test.Stub/Other", txt("")) },
		wantClient: []string{`Unimplemented "unknown method Other for service test.Stub" ""`},
	},
	{
		name: "unary/malformed method", stub: answering(nil),
		client:     func(e *env) { e.invoke(e.ctx, "/Unary", txt("")) },
		wantClient: []string{`Unimplemented "malformed method name: \"/Unary\"" ""`},
	},
	{
		name: "unary/not a message", stub: answering(nil),
		client:     func(e *env) { e.invoke(e.ctx, unaryMethod, 7) },
		wantClient: []string{`Internal "grpc: error while marshaling: proto: failed to marshal, message is int, want proto.Message" ""`},
	},
	{
		name: "unary/nil message", stub: answering(nil),
		client:     func(e *env) { e.invoke(e.ctx, unaryMethod, (*text)(nil)) },
		wantClient: []string{`ok "re: "`},
	},
	{
		name: "unary/called as a stream that sends twice", stub: answering(nil),
		client: func(e *env) {
			cs, err := e.cc.NewStream(e.ctx, &grpc.StreamDesc{ClientStreams: true}, unaryMethod)
			if err != nil {
				e.t.Fatal(err)
			}
			_ = cs.SendMsg(txt("one"))
			_ = cs.SendMsg(txt("two"))
			e.client.note("%s", recv(cs))
		},
		wantClient: []string{`Internal "cardinality violation: received multiple request messages for non-client-streaming RPC"`},
	},
	{
		name: "unary/called as a stream that sends nothing", stub: answering(nil),
		client: func(e *env) {
			cs, err := e.cc.NewStream(e.ctx, &grpc.StreamDesc{ClientStreams: true}, unaryMethod)
			if err != nil {
				e.t.Fatal(err)
			}
			_ = cs.CloseSend()
			e.client.note("%s", recv(cs))
		},
		wantClient: []string{`Internal "cardinality violation: received no request message from non-client-streaming RPC"`},
	},
}

func detailed() error {
	st, err := status.New(codes.NotFound, "gone").WithDetails(&errdetails.ErrorInfo{Domain: "execwire.v1", Reason: "PROCESS_NOT_FOUND"})
	if err != nil {
		panic(err)
	}
	return st.Err()
}
