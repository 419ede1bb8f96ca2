package gateway

import (
	"context"

	"github.com/execwire/execwire/internal/jsonrpc"
)

// environmentInfoCall is environment/info.
type environmentInfoCall struct{}

func (*environmentInfoCall) run(_ context.Context, r *request) (any, *jsonrpc.Error) {
	return r.environment, nil
}

// environmentStatusCall is environment/status.
type environmentStatusCall struct{}

type environmentStatus struct {
	Status string `json:"status"`
}

func (*environmentStatusCall) run(context.Context, *request) (any, *jsonrpc.Error) {
	return environmentStatus{Status: "ready"}, nil
}
