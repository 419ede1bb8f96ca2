package gateway

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/execwire/execwire/gateway/files"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/testrace"
)

func TestFollowSymlinks_False(t *testing.T) {
	srv := newTestServer(t, withSmallFiles)
	for method, members := range map[string]string{
		"fs/readFile": "", "fs/writeFile": `,"dataBase64":"eA=="`, "fs/createDirectory": "", "fs/getMetadata": "", "fs/remove": "",
	} {
		cl, _ := srv.attach("")
		dir := t.TempDir()
		do(t, os.Mkdir(dir+"/d", 0o755), os.WriteFile(dir+"/f", []byte("content"), 0o644), os.Symlink("f", dir+"/lf"), os.Symlink("d", dir+"/ld"), os.Symlink(".", dir+"/up"))
		path, final := "/f", "/lf"
		if method == "fs/createDirectory" {
			path, final = "/d", "/ld"
		}
		params := func(path string) json.RawMessage {
			return json.RawMessage(fmt.Sprintf(`{"path":%q%s,"followSymlinks":false}`, dir+path, members))
		}
		for _, linked := range []string{final, "/up" + path} {
			cl.refused(method, params(linked), -32600, "symbolic link")
		}
		cl.must(method, params(path))
	}
}

// Also for files that are larger than one message of the server.
func TestFollowSymlinks_FalseForLargeFile(t *testing.T) {
	testrace.WithoutRace(t)
	cl, _ := newTestServer(t, withSmallFiles).attach("")
	dir := t.TempDir()
	large := make([]byte, files.WholeWrite+1)
	do(t, os.WriteFile(dir+"/f", large, 0o644), os.Symlink("f", dir+"/lf"))
	cl.refused("fs/readFile", map[string]any{"path": dir + "/lf", "followSymlinks": false}, -32600, "symbolic link")
	cl.refused("fs/writeFile", map[string]any{"path": dir + "/lf", "dataBase64": large, "followSymlinks": false}, -32600, "symbolic link")
	cl.must("fs/writeFile", map[string]any{"path": dir + "/f", "dataBase64": large, "followSymlinks": false})
	if got := cl.must("fs/readFile", map[string]any{"path": dir + "/f", "followSymlinks": false}); len(got) < len(large)*4/3 {
		t.Errorf("got %d bytes", len(got))
	}
}

// An older server would ignore the option and follow links.
func TestFollowSymlinks_ServerWithoutSupport_Fails(t *testing.T) {
	served, cl := newTestServer(t).serveHere()
	cl.initialize("")
	path := t.TempDir() + "/f"
	do(t, os.WriteFile(path, []byte("kept"), 0o644))
	served.files.Open(served.session.id, []execwirev1.Feature{execwirev1.Feature_FEATURE_FILES})
	for _, method := range []string{"fs/readFile", "fs/writeFile", "fs/createDirectory", "fs/getMetadata", "fs/remove"} {
		cl.refused(method, map[string]any{"path": path, "dataBase64": "eA==", "followSymlinks": false}, -32600, "cannot refuse symbolic links")
	}
	if got, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(got), "kept") {
		t.Errorf("%q, %v", got, err)
	}
}
