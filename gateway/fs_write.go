package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

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

	// Beyond the reference. With one of them the file is replaced.
	Atomic       *bool   `param:"atomic,optional,named"`
	IfMatch      *string `param:"ifMatchSha256,optional,named"`
	IfMissing    *bool   `param:"ifMissing,optional,named"`
	Mode         *uint32 `param:"mode,optional,named"`
	ModifiedAtMs *int64  `param:"modifiedAtMs,optional,named"`

	path clientPath
	confinement
	data    []byte
	replace *execwirev1.UploadHead // nil to write in place
}

// check decodes the data, which is in the memory of the message.
func (p *fsWriteFileParams) check() *jsonrpc.Error {
	if err := checkFile(&p.path, "path", p.Path, &p.confinement, &p.Sandbox, &p.Policy); err != nil {
		return err
	}
	if err := p.checkReplacement(); err != nil {
		return err
	}
	data, err := jsonrpc.DecodeBase64(p.DataBase64)
	if err != nil {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "fs/writeFile requires valid base64 dataBase64: %v", err)
	}
	p.data, p.DataBase64 = data, nil
	return nil
}

// checkReplacement reads how the file is replaced, if it is.
func (p *fsWriteFileParams) checkReplacement() *jsonrpc.Error {
	asked := p.IfMatch != nil || p.IfMissing != nil && *p.IfMissing || p.Mode != nil || p.ModifiedAtMs != nil
	switch {
	case p.Atomic == nil && !asked, p.Atomic != nil && !*p.Atomic && !asked:
		return nil
	case p.Atomic != nil && !*p.Atomic:
		return pathRefused(jsonrpc.CodeInvalidParams, "atomic", "ifMatchSha256, ifMissing, mode and modifiedAtMs need atomic: leave it out")
	}
	p.replace = &execwirev1.UploadHead{Mode: execwirev1.UploadMode_UPLOAD_MODE_REPLACE, Permissions: p.Mode}
	if p.IfMissing != nil {
		p.replace.IfMissing = *p.IfMissing
	}
	if p.ModifiedAtMs != nil {
		p.replace.ModifyTime = timestamppb.New(time.UnixMilli(*p.ModifiedAtMs))
	}
	if p.IfMatch != nil {
		digest, err := hex.DecodeString(*p.IfMatch)
		if err != nil || len(digest) != sha256.Size {
			return pathRefused(jsonrpc.CodeInvalidParams, "ifMatchSha256", "ifMatchSha256 is not a SHA-256: give its 64 hexadecimal digits")
		}
		p.replace.IfMatchSha256 = digest
	}
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
	switch {
	case p.replace != nil:
		p.replace.Path, p.replace.RawPath, p.replace.NoSymlinks, p.replace.Sandbox = text, raw, noSymlinks, p.policy
		err = upload(ctx, r.fileSystem, p.replace, p.data)
	case len(p.data) <= wholeWrite:
		_, err = r.fileSystem.WriteFile(ctx, &execwirev1.WriteFileRequest{Path: text, RawPath: raw, Data: p.data, NoSymlinks: noSymlinks, Sandbox: p.policy})
	default:
		head := &execwirev1.UploadHead{Path: text, RawPath: raw, Mode: execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE, NoSymlinks: noSymlinks, Sandbox: p.policy}
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
	// This keeps gRPC from repeating the stream after a failed Send, when the
	// half-close that follows would make a part of the file the whole of it.
	_ = stream.Context()
	end := &execwirev1.UploadEnd{}
	if head.GetMode() == execwirev1.UploadMode_UPLOAD_MODE_REPLACE {
		digest := sha256.Sum256(data)
		end.Sha256 = digest[:]
	}
	message := &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: head}}
	// When sending fails the stream has ended, and receiving says why.
	for err = stream.Send(message); err == nil && len(data) > 0; err = stream.Send(message) {
		piece := data[:min(len(data), pieceWrite)]
		data = data[len(piece):]
		message = &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Data{Data: piece}}
	}
	if err == nil {
		_ = stream.Send(&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_End{End: end}})
	}
	_, err = stream.CloseAndRecv()
	return err
}
