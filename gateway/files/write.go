package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/execwire/execwire/gateway/param"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

const (
	// WholeWrite is the largest content written by one message. The server accepts at
	// least 4 MiB.
	WholeWrite = 3 << 20
	// PieceWrite is the size of the pieces of a larger content.
	PieceWrite = 1 << 20
)

type fsWriteFileParams struct {
	Path       param.Path   `param:"path"`
	DataBase64 jsonrpc.Text `param:"dataBase64"`
	confined
	following

	// Extensions of the reference. With one of them, the file is replaced.
	Atomic       *bool   `param:"atomic,optional,named"`
	IfMatch      *string `param:"ifMatchSha256,optional,named"`
	IfMissing    *bool   `param:"ifMissing,optional,named"`
	Mode         *uint32 `param:"mode,optional,named"`
	ModifiedAtMs *int64  `param:"modifiedAtMs,optional,named"`

	data    []byte
	replace *execwirev1.UploadHead // nil writes in place
}

// Check implements [call.Checked].
func (p *fsWriteFileParams) Check() *jsonrpc.Error {
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

// checkReplacement parses the extensions.
func (p *fsWriteFileParams) checkReplacement() *jsonrpc.Error {
	asked := p.IfMatch != nil || p.IfMissing != nil && *p.IfMissing || p.Mode != nil || p.ModifiedAtMs != nil
	switch {
	case p.Atomic == nil && !asked, p.Atomic != nil && !*p.Atomic && !asked:
		return nil
	case p.Atomic != nil && !*p.Atomic:
		return param.NewError(jsonrpc.CodeInvalidParams, "atomic", "ifMatchSha256, ifMissing, mode and modifiedAtMs need atomic: leave it out")
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
			return param.NewError(jsonrpc.CodeInvalidParams, "ifMatchSha256", "ifMatchSha256 is not a SHA-256: give its 64 hexadecimal digits")
		}
		p.replace.IfMatchSha256 = digest
	}
	return nil
}

func (p *fsWriteFileParams) touches() ([]param.Path, bool) { return []param.Path{p.Path}, true }

func (p *fsWriteFileParams) run(ctx context.Context, s *Service) (any, *jsonrpc.Error) {
	text, raw := p.Path.ProtoPath()
	var err error
	switch {
	case p.replace != nil:
		p.replace.Path, p.replace.RawPath, p.replace.NoSymlinks, p.replace.Sandbox = text, raw, p.refusesLinks(), p.policy
		err = upload(ctx, s.client, p.replace, p.data)
	case len(p.data) <= WholeWrite:
		_, err = s.client.WriteFile(ctx, &execwirev1.WriteFileRequest{Path: text, RawPath: raw, Data: p.data, NoSymlinks: p.refusesLinks(), Sandbox: p.policy})
	default:
		head := &execwirev1.UploadHead{Path: text, RawPath: raw, Mode: execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE, NoSymlinks: p.refusesLinks(), Sandbox: p.policy}
		err = upload(ctx, s.client, head, p.data)
	}
	if err != nil {
		return nil, contentFailure(err, p.Path)
	}
	return nothing{}, nil
}

// upload writes a file in pieces.
func upload(ctx context.Context, client execwirev1.FileSystemServiceClient, head *execwirev1.UploadHead, data []byte) error {
	stream, err := client.UploadFile(ctx)
	if err != nil {
		return err
	}
	// Context commits the stream, so that gRPC does not retry it after a failed Send;
	// the half-close of a retried stream would make a part of the file the whole file.
	_ = stream.Context()
	end := &execwirev1.UploadEnd{}
	if head.GetMode() == execwirev1.UploadMode_UPLOAD_MODE_REPLACE {
		digest := sha256.Sum256(data)
		end.Sha256 = digest[:]
	}
	message := &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: head}}
	// A failed Send ended the stream; Recv returns the reason.
	for err = stream.Send(message); err == nil && len(data) > 0; err = stream.Send(message) {
		piece := data[:min(len(data), PieceWrite)]
		data = data[len(piece):]
		message = &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Data{Data: piece}}
	}
	if err == nil {
		_ = stream.Send(&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_End{End: end}})
	}
	_, err = stream.CloseAndRecv()
	return err
}
