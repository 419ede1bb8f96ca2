package gateway

import (
	"context"
	"encoding/json"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type fsRenameParams struct {
	SourcePath      string          `param:"sourcePath"`
	DestinationPath string          `param:"destinationPath"`
	NoReplace       *bool           `param:"noReplace,optional"`
	Sandbox         json.RawMessage `param:"sandbox,optional"`
	Policy          json.RawMessage `param:"sandboxPolicy,optional,named"`

	source, destination clientPath
	confinement
}

func (p *fsRenameParams) check() *jsonrpc.Error {
	if err := checkFile(&p.source, "sourcePath", p.SourcePath, &p.confinement, &p.Sandbox, &p.Policy); err != nil {
		return err
	}
	var err *jsonrpc.Error
	p.destination, err = parsePath("destinationPath", p.DestinationPath)
	return err
}

func (p *fsRenameParams) touches() ([]string, bool) {
	return []string{p.source.native, p.destination.native}, true
}

func (p *fsRenameParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	from, rawFrom := p.source.forCore()
	to, rawTo := p.destination.forCore()
	_, err := r.fileSystem.RenamePath(ctx, &execwirev1.RenamePathRequest{SourcePath: from, RawSourcePath: rawFrom,
		DestinationPath: to, RawDestinationPath: rawTo, NoReplace: p.NoReplace != nil && *p.NoReplace, Sandbox: p.policy})
	if err != nil {
		return nil, fileFailure(err)
	}
	return nothing{}, nil
}
