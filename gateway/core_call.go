package gateway

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

// coreCallParams are the parameters of core/call.
type coreCallParams struct {
	Method  string          `param:"method"`
	Request json.RawMessage `param:"request,optional"`

	method  *coreMethod
	request proto.Message
}

func (p *coreCallParams) check() (err *jsonrpc.Error) {
	if p.method, err = findCoreMethod(p.Method, false); err != nil {
		return err
	}
	p.request, err = parseCoreMessage("request", takeRaw(&p.Request), p.method.in)
	return err
}

func (p *coreCallParams) touches() ([]string, bool) {
	return pathsOf(p.request.ProtoReflect()), p.method.changes
}

// coreAnswer is the result of core/call.
type coreAnswer struct {
	Response coreMessage `json:"response"`

	leave func()
}

func (a *coreAnswer) wasSaid() {
	if a.leave != nil {
		a.leave()
	}
}

func (p *coreCallParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	if failed := r.messageFits(p.request); failed != nil {
		return nil, failed
	}
	answer := &coreAnswer{Response: coreMessage{p.method.out.New().Interface()}}
	if p.Method == coreReadFile {
		leave, failed := r.bulk.enter(ctx)
		if failed != nil {
			return nil, failed
		}
		answer.leave = leave
	}
	if err := r.upstream.Invoke(ctx, p.method.name, p.request, answer.Response.Message, grpc.MaxCallRecvMsgSize(maxCoreMessage)); err != nil {
		answer.wasSaid()
		return nil, fileFailure(err)
	}
	return answer, nil
}
