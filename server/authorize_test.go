package server

import (
	"os"
	"slices"
	"strings"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/errorinfo"
)

func TestPermissions_MatchSecurityDocument(t *testing.T) {
	text, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "| permission | calls |\n| --- | --- |\n")
	body, _, _ := strings.Cut(rest, "\n\n")
	documented := map[string][]string{}
	for line := range strings.SplitSeq(body, "\n") {
		cells := strings.Split(strings.ReplaceAll(line, "`", ""), "|")
		documented[strings.TrimSpace(cells[1])] = strings.Split(strings.TrimSpace(cells[2]), ", ")
	}
	want := map[string][]string{}
	for method, need := range needs {
		if need.permission == 0 {
			continue
		}
		name := need.permission.String()
		want[name] = append(want[name], method[strings.LastIndexByte(method, '/')+1:])
	}
	if len(documented) != len(want) {
		t.Errorf("documented are %v, want %v", documented, want)
	}
	for permission, calls := range want {
		slices.Sort(calls)
		if !slices.Equal(documented[permission], calls) {
			t.Errorf("%s: documented are %v, want %v", permission, documented[permission], calls)
		}
	}
}

func TestPermissions_EachCall_NeedsAtMostOne(t *testing.T) {
	for method, need := range needs {
		if need.public && (need.permission != 0 || need.local) {
			t.Errorf("%s is public and needs %v", method, need)
		}
		if need.permission != 0 && strings.Contains(need.permission.String(), ",") {
			t.Errorf("%s needs more than one permission: %v", method, need.permission)
		}
	}
}

func TestMayCall_SignFileURL_NeedsPermissionOfMethod(t *testing.T) {
	for method, want := range map[execwirev1.FileURLMethod]auth.Permissions{
		execwirev1.FileURLMethod_FILE_URL_METHOD_GET: auth.ReadFiles,
		execwirev1.FileURLMethod_FILE_URL_METHOD_PUT: auth.WriteFiles,
	} {
		for _, may := range []auth.Permissions{auth.ReadFiles, auth.WriteFiles} {
			caller := auth.Caller{Principal: auth.Principal{Name: "p"}, May: may}
			err := MayCall(caller, nil, execwirev1.FileSystemService_SignFileURL_FullMethodName, &execwirev1.SignFileURLRequest{Method: method})
			if (err == nil) != (may == want) {
				t.Errorf("%v with %v: %v", method, may, err)
			}
		}
	}
}

// A request that is not inspected (nil) needs the permission of the method only.
func TestMayCall_OpenForReplace_NeedsWriteFiles(t *testing.T) {
	const method = execwirev1.FileSystemService_OpenFile_FullMethodName
	reader := auth.Caller{Principal: auth.Principal{Name: "reader"}, May: auth.ReadFiles}
	writer := auth.Caller{Principal: auth.Principal{Name: "writer"}, May: auth.ReadFiles | auth.WriteFiles}
	read := &execwirev1.OpenFileRequest{Mode: execwirev1.OpenMode_OPEN_MODE_READ}
	replace := &execwirev1.OpenFileRequest{Mode: execwirev1.OpenMode_OPEN_MODE_REPLACE}
	for _, tt := range []struct {
		caller auth.Caller
		req    any
		want   string
	}{{reader, read, ""}, {reader, nil, ""}, {reader, replace, "CALL_NOT_ALLOWED"}, {writer, replace, ""}} {
		if err := MayCall(tt.caller, nil, method, tt.req); errorinfo.Of(err).GetReason() != tt.want {
			t.Errorf("%s with %v: %v, want %q", tt.caller.Principal.Name, tt.req, err, tt.want)
		}
	}
}
