package gateway

import (
	"context"
	"encoding/json"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const (
	// wholeWrite is the most that is written by one message to the core, which
	// takes at least 4 MiB.
	wholeWrite = 3 << 20
	// pieceWrite is how much more than that is written by one message.
	pieceWrite = 1 << 20
)

type fsWriteFileParams struct {
	Path       string          `param:"path"`
	DataBase64 jsonrpc.Text    `param:"dataBase64"`
	Sandbox    json.RawMessage `param:"sandbox,optional"`
	Policy     json.RawMessage `param:"sandboxPolicy,optional,named"`
	Follow     *bool           `param:"followSymlinks,optional"`

	path clientPath
	data []byte
}

// check decodes the data, which is in the memory of the message.
func (p *fsWriteFileParams) check() *jsonrpc.Error {
	if err := checkFile(&p.path, "path", p.Path, &p.Sandbox, &p.Policy); err != nil {
		return err
	}
	data, err := jsonrpc.DecodeBase64(p.DataBase64)
	if err != nil {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "fs/writeFile requires valid base64 dataBase64: %v", err)
	}
	p.data, p.DataBase64, p.Sandbox, p.Policy = data, nil, nil, nil
	return nil
}

func (p *fsWriteFileParams) touches() ([]string, bool) { return []string{p.path.native}, true }

func (p *fsWriteFileParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	noSymlinks, failed := r.noSymlinks(p.Follow)
	if failed != nil {
		return nil, failed
	}
	text, raw := p.path.forCore()
	var err error
	if len(p.data) <= wholeWrite {
		_, err = r.fileSystem.WriteFile(ctx, &execwirev1.WriteFileRequest{Path: text, RawPath: raw, Data: p.data, NoSymlinks: noSymlinks})
	} else {
		head := &execwirev1.UploadHead{Path: text, RawPath: raw, Mode: execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE, NoSymlinks: noSymlinks}
		err = upload(ctx, r.fileSystem, head, p.data)
	}
	if err != nil {
		return nil, contentFailure(err, p.path)
	}
	return nothing{}, nil
}

// upload writes a file in pieces.
func upload(ctx context.Context, files execwirev1.FileSystemServiceClient, head *execwirev1.UploadHead, data []byte) error {
	stream, err := files.UploadFile(ctx)
	if err != nil {
		return err
	}
	message := &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: head}}
	// When sending fails the stream has ended, and receiving says why.
	for err = stream.Send(message); err == nil && len(data) > 0; err = stream.Send(message) {
		piece := data[:min(len(data), pieceWrite)]
		data = data[len(piece):]
		message = &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Data{Data: piece}}
	}
	_, err = stream.CloseAndRecv()
	return err
}
