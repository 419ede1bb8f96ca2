package execserver

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// callMaker makes calls on the files of a small tree, so that many of them meet.
type callMaker struct {
	*rand.Rand
	tag string // of uploads
}

func pick[T any](r *callMaker, list ...T) T { return list[r.IntN(len(list))] }

// path is one of few, now and then one that is none.
func (r *callMaker) path() (text string, raw []byte) {
	if r.IntN(30) == 0 {
		return pick(r, "", "relative", "/nul\x00", "//"), nil
	}
	if r.IntN(30) == 0 {
		return rootMark + "/a", []byte(rootMark + "/a")
	}
	parts := []string{rootMark}
	for range 1 + r.IntN(3) {
		parts = append(parts, pick(r, "a", "b", "c", "d%20 ü", "..", "."))
	}
	path := strings.Join(parts, "/")
	if strings.Contains(path, "/..") || strings.Trim(path, "/.") == strings.Trim(rootMark, "/") { // the directory itself stays
		path = rootMark + "/a/../b"
	}
	if r.IntN(8) == 0 {
		return "", []byte(path + "\xff\xfe")
	}
	return path, nil
}

func (r *callMaker) content() []byte {
	return []byte(strings.Repeat(pick(r, "", "x", "content ", "\x00\xff"), r.IntN(8_000)))
}

func (r *callMaker) policy() *execwirev1.SandboxPolicy {
	switch r.IntN(20) {
	case 0:
		return &execwirev1.SandboxPolicy{}
	case 1:
		return &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Disabled{Disabled: &execwirev1.DisabledSandbox{}}}
	case 2: // which this server cannot enforce
		return &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Managed{Managed: &execwirev1.ManagedSandbox{
			FileSystem: &execwirev1.FileSystemPolicy{Policy: &execwirev1.FileSystemPolicy_Restricted{Restricted: &execwirev1.RestrictedFileSystem{
				Entries: []*execwirev1.SandboxEntry{{Place: &execwirev1.SandboxEntry_Path{Path: rootMark}, Access: execwirev1.SandboxAccess_SANDBOX_ACCESS_READ}},
			}}}}}}
	}
	return nil
}

func (r *callMaker) flag() bool { return r.IntN(2) == 0 }

func (r *callMaker) rarely() bool { return r.IntN(6) == 0 }

// call makes one.
func (r *callMaker) call() fileCall {
	path, raw := r.path()
	other, rawOther := r.path()
	policy := r.policy()
	one := func(method string, request proto.Message) fileCall { return fileCall{method, []proto.Message{request}} }
	upload := fmt.Sprint(sideMark, r.tag, r.IntN(3))
	mode := uint32(pick(r, 0o600, 0o644, 0o755, 0o100, 0o4755, 0o17777))
	switch r.IntN(20) {
	case 0, 1, 2, 3:
		return fileCall{"UploadFile", []proto.Message{
			&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: &execwirev1.UploadHead{
				Path: path, RawPath: raw, Sandbox: policy, Mode: execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE, NoSymlinks: r.rarely()}}},
			&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Data{Data: r.content()}},
			&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_End{End: &execwirev1.UploadEnd{}}}}}
	case 4, 5, 6:
		request := &execwirev1.CreateDirectoryRequest{Path: path, RawPath: raw, Sandbox: policy, Recursive: r.flag(), NoSymlinks: r.rarely()}
		if r.flag() {
			request.Permissions = &mode
		}
		return one("CreateDirectory", request)
	case 7:
		return one("GetMetadata", &execwirev1.GetMetadataRequest{
			Path: path, RawPath: raw, Sandbox: policy, NoFollow: r.flag(), WantSha256: r.rarely(), NoSymlinks: r.rarely()})
	case 8:
		return one("ReadDirectory", &execwirev1.ReadDirectoryRequest{Path: path, RawPath: raw, Sandbox: policy, NoSymlinks: r.rarely()})
	case 9:
		return one("RemovePath", &execwirev1.RemovePathRequest{
			Path: path, RawPath: raw, Sandbox: policy, Recursive: r.flag(), IgnoreMissing: r.flag(), NoSymlinks: r.rarely()})
	case 10:
		return one("CopyPath", &execwirev1.CopyPathRequest{SourcePath: path, RawSourcePath: raw,
			DestinationPath: other, RawDestinationPath: rawOther, Sandbox: policy, Recursive: r.flag()})
	case 11:
		return one("RenamePath", &execwirev1.RenamePathRequest{SourcePath: path, RawSourcePath: raw,
			DestinationPath: other, RawDestinationPath: rawOther, Sandbox: policy, NoReplace: r.flag()})
	case 12, 13:
		return one("CreateSymlink", &execwirev1.CreateSymlinkRequest{Path: path, RawPath: raw, Sandbox: policy, Target: pick(r, "a", "../b", "none", rootMark+"/c", "")})
	case 14:
		return one("CanonicalizePath", &execwirev1.CanonicalizePathRequest{Path: path, RawPath: raw, Sandbox: policy})
	case 15:
		length := r.Uint64N(100_000)
		request := &execwirev1.DownloadFileRequest{Path: path, RawPath: raw, Sandbox: policy, Offset: r.Uint64N(10), WantSha256: r.flag(), NoSymlinks: r.rarely()}
		if r.flag() {
			request.Length = &length
		}
		if r.rarely() {
			request.IfVersion = "another"
		}
		return one("DownloadFile", request)
	case 16:
		depth := uint32(r.IntN(3))
		return one("WalkDirectory", &execwirev1.WalkDirectoryRequest{Path: path, RawPath: raw, Sandbox: policy, MaxDepth: &depth, WantMetadata: r.flag(),
			FollowDirectorySymlinks: r.flag(), Ignore: pick(r, nil, []string{"b"}, []string{"!"})})
	case 17:
		return one("GetUpload", &execwirev1.GetUploadRequest{UploadId: upload})
	}
	return r.upload(path, raw, upload, policy, mode)
}

func (r *callMaker) upload(path string, raw []byte, id string, policy *execwirev1.SandboxPolicy, mode uint32) fileCall {
	head := &execwirev1.UploadHead{Path: path, RawPath: raw, Sandbox: policy, Mode: pick(r,
		execwirev1.UploadMode_UPLOAD_MODE_REPLACE, execwirev1.UploadMode_UPLOAD_MODE_REPLACE, execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE)}
	if head.GetMode() == execwirev1.UploadMode_UPLOAD_MODE_REPLACE {
		head.IfMissing, head.Sync = r.rarely(), r.rarely()
		if r.flag() {
			head.Permissions = &mode
			head.ModifyTime = &timestamppb.Timestamp{Seconds: 1_000_000_000, Nanos: 123_456_789}
		}
		if r.flag() {
			head.UploadId, head.Offset = id, pick(r, 0, 0, uint64(r.IntN(3)))
		}
		if r.rarely() {
			head.IfMatchSha256 = make([]byte, 32)
		}
	}
	call := fileCall{"UploadFile", []proto.Message{&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: head}}}}
	if r.rarely() && r.flag() {
		call.requests = nil
	}
	for range r.IntN(4) {
		call.requests = append(call.requests, &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Data{Data: r.content()}})
	}
	if !r.rarely() {
		end := &execwirev1.UploadEnd{}
		if r.rarely() {
			end.Sha256 = make([]byte, 32)
		}
		call.requests = append(call.requests, &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_End{End: end}})
	}
	return call
}
